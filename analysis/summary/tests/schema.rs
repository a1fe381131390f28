//! The JSON schema in the tree describes exactly what is written.

mod summaries;

use std::collections::BTreeSet;

use plimsoll_summary::Summary;
use serde_json::Value;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../schema/plimsoll-summary-1.schema.json")).unwrap()
}

fn all() -> Vec<(&'static str, Summary)> {
    vec![
        ("minimal", summaries::minimal()),
        ("balanced", summaries::balanced()),
        ("imbalance", summaries::imbalance()),
        ("serialization", summaries::serialization()),
        ("oversubscription", summaries::oversubscription()),
        ("without_mpi", summaries::without_mpi()),
        ("ended_by_signal", summaries::ended_by_signal()),
        ("overfull", summaries::overfull()),
        ("maximal", summaries::maximal()),
    ]
}

#[test]
fn the_schema_is_a_schema() {
    assert!(jsonschema::draft202012::meta::is_valid(&schema()));
}

#[test]
fn a_written_summary_is_valid_and_read_back_unchanged() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    for (name, summary) in all() {
        let text = serde_json::to_string(&summary).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary, "{name}");
    }
}

#[test]
fn another_json_file_is_refused() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let good = serde_json::to_value(summaries::maximal()).unwrap();
    for (pointer, wrong) in [
        ("/schema", Value::from("plimsoll-summary/2")),
        ("/run/elapsed_s", Value::Null),
        ("/run/mpi/abi", Value::from("lam")),
        ("/losses/0/kind", Value::from("bad luck")),
        ("/losses/0/slow_ranks", Value::from("12 to 15")),
        ("/losses/0/symptom/breakdown", serde_json::json!({"fun": 1.0})),
        ("/tree/nodes/0/inclusive/mean_s", Value::from(-1.0)),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect(pointer) = wrong;
        assert!(!validator.is_valid(&bad), "{pointer}");
    }
}

/// Keys that were added after the contract.
const ADDED: [&str; 36] = [
    "also_in",
    "also_in_phases",
    "world_ranks",
    "threads",
    "thread_times",
    "windows",
    "when",
    "thresholds",
    "memory",
    "notes",
    "unsampled_threads",
    "structure_cpu_s",
    "late_structure_cpu_s",
    "late_functions",
    "longest_s",
    "late_samples",
    "pruned",
    "truncated_by",
    "thread_clusters",
    "biclusters",
    "population",
    "estimate",
    "counters",
    "communication",
    "holders",
    "median_s",
    "waits_for",
    "origin",
    "changes",
    "pattern",
    "lateness",
    "difference",
    "rank",
    "event",
    "node",
    "factor",
];

/// Every object of a summary with every key filled has the keys that the schema names for it, and
/// the schema demands all but those that were added after the contract.
#[test]
fn schema_and_types_name_the_same_keys() {
    let schema = schema();
    let mut seen = BTreeSet::new();
    let value = serde_json::to_value(summaries::maximal()).unwrap();
    compare(&schema, &schema, &value, "", &mut seen);
    let defined: BTreeSet<String> =
        schema["$defs"].as_object().unwrap().keys().map(|key| format!("#/$defs/{key}")).collect();
    assert_eq!(defined.difference(&seen).collect::<Vec<_>>(), Vec::<&String>::new());
}

fn compare(schema: &Value, part: &Value, value: &Value, at: &str, seen: &mut BTreeSet<String>) {
    if let Some(Value::Array(choices)) = part.get("anyOf") {
        return compare(schema, &choices[usize::from(value.is_null())], value, at, seen);
    }
    if let Some(name) = part.get("$ref").and_then(Value::as_str) {
        seen.insert(name.into());
        let target = schema.pointer(name.trim_start_matches('#')).expect(name);
        return compare(schema, target, value, at, seen);
    }
    if let Some(names) = part.get("propertyNames") {
        return compare(schema, names, value, at, seen);
    }
    if let (Some(Value::Object(properties)), Value::Object(fields)) =
        (part.get("properties"), value)
    {
        let named: BTreeSet<&String> = properties.keys().collect();
        assert_eq!(named, fields.keys().collect(), "keys of {at:?}");
        let required: BTreeSet<&str> =
            part["required"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
        let optional: Vec<&String> =
            named.into_iter().filter(|key| !required.contains(key.as_str())).collect();
        assert!(
            optional.iter().all(|key| ADDED.contains(&key.as_str())),
            "{at:?} does not demand {optional:?}"
        );
        for (key, field) in fields {
            compare(schema, &properties[key], field, &format!("{at}/{key}"), seen);
        }
    }
    if let (Some(each @ Value::Object(_)), Value::Object(fields)) =
        (part.get("additionalProperties"), value)
    {
        for (key, field) in fields {
            compare(schema, each, field, &format!("{at}/{key}"), seen);
        }
    }
    if let (Some(items), Value::Array(elements)) = (part.get("items"), value) {
        assert!(!elements.is_empty(), "{at} is not filled");
        for (index, element) in elements.iter().enumerate() {
            compare(schema, items, element, &format!("{at}/{index}"), seen);
        }
    }
}
