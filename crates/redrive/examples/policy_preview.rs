//! A policy is data: print what every preset, and one of your own, will do before it happens.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use redrive::{Jitter, Origin, Policy, days, hours, millis, mins, secs, span};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:<22} {:<40} then", "policy", "waits, before jitter");
    for name in Policy::PRESETS {
        show(name, &Policy::preset(name)?);
    }

    let patient = Policy::schedule([secs(20), mins(5), mins(30), hours(2)])
        .jitter(Jitter::ratio(0.1))
        .attempts(7)
        .within(days(1));
    patient.validate().map_err(|mistakes| mistakes.join("; "))?;
    show("one of your own", &patient);

    // The numbers above are what a job will do, so they can be asserted like anything else.
    assert_eq!(Policy::preset("media")?.preview(99), [secs(1), secs(2), secs(4), secs(8)]);
    assert_eq!(patient.preview(99), [secs(20), mins(5), mins(30), hours(2), hours(2), hours(2)]);

    // A policy that cannot be meant is refused, with what to write instead.
    let Err(mistakes) = Policy::exponential(millis(100)..=secs(5)).attempts(0).validate() else {
        return Err("a policy that never runs anything was accepted".into());
    };
    println!("\nrefused: {}", mistakes.join("; "));
    assert!(!mistakes.is_empty());
    Ok(())
}

fn show(name: &str, policy: &Policy) {
    let waits: Vec<String> = policy.preview(8).into_iter().map(span::format).collect();
    let end = match policy.retries_allowed(Origin::Engine) {
        Some(retries) => format!("dead after retry {retries}"),
        None => "goes on until its time is over".to_owned(),
    };
    println!("{name:<22} {:<40} {end}", waits.join(", "));
}
