//! The description of the API: what is committed is what is served, and every operation is described in full.

#![expect(clippy::disallowed_methods, reason = "a variable says that files are to be written")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redrive_server::api;
use serde_json::{Value, json};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn description() -> Value {
    serde_json::to_value(api::openapi()).unwrap()
}

/// Each operation under `METHOD path`.
fn operations(description: &Value) -> BTreeMap<String, &Value> {
    let mut operations = BTreeMap::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                operations.insert(format!("{} {path}", method.to_uppercase()), operation);
            }
        }
    }
    operations
}

/// The schema behind a reference.
fn resolve<'a>(description: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => description.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}

fn json_schema(response: &Value) -> &Value {
    &response["content"]["application/json"]["schema"]
}

#[test]
fn the_committed_description_is_the_one_that_is_served() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let mut text = serde_json::to_string_pretty(&description()).unwrap();
    text.push('\n');
    if std::env::var_os("REDRIVE_WRITE_OPENAPI").is_some() {
        std::fs::write(&file, text).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == text, "openapi.json is not what the routes say; write it with: make docs");
}

#[test]
fn it_is_openapi_3_1() {
    let version = description()["openapi"].as_str().unwrap().to_owned();
    assert!(version.starts_with("3.1"), "{version}");
}

#[test]
fn a_token_is_described_and_can_be_left_out_where_none_is_asked_for() {
    let description = description();
    let scheme = &description["components"]["securitySchemes"]["bearer"];
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&json!("http"), &json!("bearer")));
    assert_eq!(description["security"], json!([{}, { "bearer": [] }]));
}

#[test]
fn what_is_one_of_a_few_words_says_which() {
    let description = description();
    let schemas = &description["components"]["schemas"];
    for (form, field, word) in [
        ("JobForm", "onConflict", "reject"),
        ("FailForm", "class", "rate_limited"),
        ("BulkForm", "command", "redrive"),
        ("JobView", "state", "dead"),
        ("JobView", "origin", "external"),
        ("ExplainView", "state", "waiting"),
    ] {
        let schema = &schemas[form]["properties"][field];
        let schema = schema["oneOf"].get(0).unwrap_or(schema);
        let words =
            resolve(&description, schema)["enum"].as_array().unwrap_or_else(|| panic!("{form} {field}"));
        assert!(words.contains(&json!(word)), "{form} {field}: {words:?}");
    }
}

#[test]
fn a_policy_is_described_wherever_one_is_sent() {
    let description = description();
    let schemas = &description["components"]["schemas"];
    for form in
        ["JobForm", "EditForm", "RetryForm", "PreviewForm", "ClassifyForm", "SimulateForm", "NodeForm"]
    {
        let policy = schemas[form]["properties"]["policy"].to_string();
        assert!(policy.contains("#/components/schemas/PolicyForm"), "{form}: {policy}");
    }
    let fields = schemas["Policy"]["properties"].as_object().unwrap();
    assert!(["backoff", "jitter", "maxAttempts", "rules"].iter().all(|field| fields.contains_key(*field)));
    let kinds = schemas["Backoff"]["anyOf"].as_array().unwrap().iter();
    let kinds: Vec<&Value> = kinds.map(|backoff| &backoff["properties"]["kind"]["enum"][0]).collect();
    assert_eq!(kinds, ["immediate", "fixed", "linear", "exponential", "fibonacci", "schedule"]);
}

#[test]
fn every_operation_has_a_name_of_its_own_a_tag_and_a_sentence() {
    let description = description();
    let mut names = BTreeSet::new();
    for (operation, said) in operations(&description) {
        let name = said["operationId"].as_str().unwrap_or_else(|| panic!("{operation} has no operationId"));
        assert!(names.insert(name.to_owned()), "{operation}: {name} is taken");
        assert_eq!(said["tags"].as_array().map(Vec::len), Some(1), "{operation}");
        assert!(said["summary"].as_str().is_some_and(|text| !text.is_empty()), "{operation}");
    }
    assert_eq!(names.len(), 69);
}

#[test]
fn every_answer_under_the_api_is_an_envelope_except_the_stream() {
    let description = description();
    for (operation, said) in operations(&description) {
        let is_in_envelope = operation.contains(" /api/v1/") && !operation.ends_with("/events");
        let responses = said["responses"].as_object().unwrap();
        let good: Vec<&String> = responses.keys().filter(|status| status.starts_with('2')).collect();
        assert!(!good.is_empty(), "{operation} has no success");
        for status in good {
            if !is_in_envelope {
                assert!(responses[status]["content"].is_object(), "{operation} {status} has no content");
                continue;
            }
            let schema = resolve(&description, json_schema(&responses[status]));
            let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!(names, ["data", "success"], "{operation} {status}");
        }
    }
}

#[test]
fn every_operation_says_how_it_refuses() {
    let description = description();
    for (operation, said) in operations(&description) {
        let schema = resolve(&description, json_schema(&said["responses"]["4XX"]));
        let error = resolve(&description, &schema["properties"]["error"]);
        assert!(error["properties"]["code"].is_object(), "{operation}: {schema}");
        if operation != "GET /readyz" {
            let unavailable = json_schema(&said["responses"]["503"]);
            let reads_the_store = !operation.contains("/policies/")
                && !operation.ends_with("/classify")
                && !operation.ends_with("/healthz");
            // One simulation at a time: whoever comes second is asked to come again.
            let may_be_busy = operation.ends_with("/policies/simulate");
            assert_eq!(unavailable.is_object(), reads_the_store || may_be_busy, "{operation}: 503");
        }
    }
}

#[test]
fn every_part_of_a_path_is_described() {
    let description = description();
    for (operation, said) in operations(&description) {
        let wanted: BTreeSet<&str> =
            operation.split('{').skip(1).filter_map(|part| part.split('}').next()).collect();
        let parameters = said["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let described: BTreeSet<&str> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert_eq!(described, wanted, "{operation}");
    }
}
