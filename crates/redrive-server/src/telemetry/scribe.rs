//! The thread that writes the log. What is logged while it writes, and for a moment after, collects and goes out together:
//! a line costs whoever logs it no system call, and a slow reader holds nobody up until a good deal has collected.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// As much may collect; then whoever logs waits until it is written. Nothing is left out.
const COLLECTED_MAX: usize = 1 << 20;
/// The moment: what comes after a quiet time is written at once, and a busy server's lines a hundred times a second.
const MOMENT: Duration = Duration::from_millis(10);

/// Writes the log for as long as it is there. When it is dropped, everything that was logged before is written; what is
/// logged later is written by whoever logs it.
pub struct Scribe {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

struct Desk {
    page: Mutex<Page>,
    /// There is something to write, or to end.
    filled: Condvar,
    /// There is room again.
    emptied: Condvar,
}

#[derive(Default)]
struct Page {
    lines: Vec<u8>,
    /// The thread waits to be told.
    waiting: bool,
    /// The thread is to end when it has nothing left to write.
    ending: bool,
    /// The thread writes no more.
    ended: bool,
}

impl Scribe {
    /// Writes to this from a thread of its own.
    ///
    /// # Errors
    ///
    /// The operating system's, if it has no thread to give.
    pub(super) fn start(mut to: impl Write + Send + 'static) -> io::Result<Scribe> {
        let (page, filled, emptied) = Default::default();
        let desk = Arc::new(Desk { page, filled, emptied });
        let own = desk.clone();
        let thread = std::thread::Builder::new().name("redrive-log".into()).spawn(move || {
            while let Some(lines) = own.collected() {
                // Nobody could be told that the log cannot be written.
                drop(to.write_all(&lines).and_then(|()| to.flush()));
                own.pause();
            }
        })?;
        Ok(Scribe { desk, thread: Some(thread) })
    }

    /// Takes whole lines.
    pub(super) fn pen(&self) -> Pen {
        Pen(self.desk.clone())
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.desk.page().ending = true;
        self.desk.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, nothing more can be written by it.
            drop(thread.join());
        }
    }
}

impl Desk {
    fn page(&self) -> MutexGuard<'_, Page> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a moment pass, unless it is to end or there is no more room. Meanwhile nobody needs to tell it of a line.
    fn pause(&self) {
        let goes_on = |page: &mut Page| !page.ending && page.lines.len() < COLLECTED_MAX;
        drop(self.filled.wait_timeout_while(self.page(), MOMENT, goes_on));
    }

    /// What has collected, as soon as there is something; nothing at the end.
    fn collected(&self) -> Option<Vec<u8>> {
        let mut page = self.page();
        while page.lines.is_empty() {
            if page.ending {
                page.ended = true;
                self.emptied.notify_all();
                return None;
            }
            page.waiting = true;
            page = self.filled.wait(page).unwrap_or_else(PoisonError::into_inner);
        }
        page.waiting = false;
        self.emptied.notify_all();
        Some(std::mem::take(&mut page.lines))
    }
}

/// Hands lines to the thread.
#[derive(Clone)]
pub(super) struct Pen(Arc<Desk>);

impl Write for Pen {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let Pen(desk) = self;
        let mut page = desk.page();
        while page.lines.len() >= COLLECTED_MAX && !page.ended {
            // It may be letting a moment pass.
            desk.filled.notify_one();
            page = desk.emptied.wait(page).unwrap_or_else(PoisonError::into_inner);
        }
        if page.ended {
            drop(page);
            return io::stderr().write(lines);
        }
        page.lines.extend_from_slice(lines);
        if std::mem::take(&mut page.waiting) {
            desk.filled.notify_one();
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A reader that takes one piece after another, each when it is let.
    struct Slow {
        let_go: mpsc::Receiver<()>,
        took: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.let_go.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.took.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_logged_while_the_reader_is_slow_goes_out_together_and_in_order() {
        let (let_go, is_let) = mpsc::channel();
        let (took, taken) = mpsc::channel();
        let scribe = Scribe::start(Slow { let_go: is_let, took }).unwrap();
        let mut pen = scribe.pen();
        pen.write_all(b"first\n").unwrap();
        let_go.send(()).unwrap();
        assert_eq!(taken.recv().unwrap(), b"first\n");
        pen.write_all(b"0\n").unwrap();
        for number in 1..100 {
            pen.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        // However the thread came by, it cannot have asked the reader more than twice by now.
        (0..2).for_each(|_| let_go.send(()).unwrap());
        drop(let_go);
        drop(scribe);
        let rest: Vec<u8> = taken.iter().flatten().collect();
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(String::from_utf8(rest).unwrap(), expected);
    }

    #[test]
    fn nothing_is_left_out_when_more_collects_than_may() {
        let (let_go, is_let) = mpsc::channel();
        let (took, taken) = mpsc::channel();
        let scribe = Scribe::start(Slow { let_go: is_let, took }).unwrap();
        let mut pen = scribe.pen();
        let lines = 3 * COLLECTED_MAX / 1_000;
        let writer = std::thread::spawn(move || {
            (0..lines).for_each(|_| pen.write_all(&[b'x'; 1_000]).unwrap());
        });
        let mut got = 0;
        while got < lines * 1_000 {
            let_go.send(()).unwrap();
            got += taken.recv().unwrap().len();
        }
        writer.join().unwrap();
        assert_eq!(got, lines * 1_000);
    }
}
