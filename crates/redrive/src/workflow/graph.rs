//! Whether steps can come one after the other, and in which order.

use std::collections::BTreeMap;

use super::{NODES_MAX, Node};
use crate::machine::NAME_BYTES_MAX;

/// Pairs of nodes of which one comes after the other.
const EDGES_MAX: usize = 50_000;
/// Longer names would not fit into a label.
const NODE_ID_BYTES_MAX: usize = NAME_BYTES_MAX - super::NODE_LABEL.len();
/// A longer circle is told by its beginning.
const CIRCLE_SHOWN: usize = 10;

/// Steps in an order in which each comes after all that it waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    /// The places of the nodes in the order in which they can begin.
    pub(crate) places: Vec<usize>,
    /// By place: the places of those it comes after, each once.
    pub(crate) before: Vec<Vec<usize>>,
    /// The places of those that nobody comes after.
    pub(crate) last: Vec<usize>,
}

impl Order {
    /// The order, or everything that is wrong, each with its place and what to write.
    pub(crate) fn of(nodes: &[Node]) -> Result<Order, Vec<String>> {
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(vec![format!("nodes has {} entries; write 1 to {NODES_MAX}", nodes.len())]);
        }
        let mut problems = Vec::new();
        let places = names(nodes, &mut problems);
        let before: Vec<Vec<usize>> =
            nodes.iter().enumerate().map(|(at, node)| befores(at, node, &places, &mut problems)).collect();
        let edges: usize = before.iter().map(Vec::len).sum();
        if edges > EDGES_MAX {
            problems.push(format!("nodes come after others {edges} times; write at most {EDGES_MAX}"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let order = sorted(&before);
        if order.len() < nodes.len() {
            return Err(vec![circle(nodes, &before, &order)]);
        }
        let mut is_last = vec![true; nodes.len()];
        before.iter().flatten().for_each(|at| is_last[*at] = false);
        let last = (0..nodes.len()).filter(|at| is_last[*at]).collect();
        Ok(Order { places: order, before, last })
    }
}

fn names<'a>(nodes: &'a [Node], problems: &mut Vec<String>) -> BTreeMap<&'a str, usize> {
    let mut places = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let id = node.node_id.as_str();
        if id.is_empty() || id.len() > NODE_ID_BYTES_MAX {
            problems
                .push(format!("nodes[{at}].nodeId has {} bytes; write 1 to {NODE_ID_BYTES_MAX}", id.len()));
        } else if let Some(other) = places.get(id) {
            problems
                .push(format!("nodes[{at}].nodeId is {id:?}, as nodes[{other}]'s is; write another name"));
        } else {
            places.insert(id, at);
        }
    }
    places
}

fn befores(at: usize, node: &Node, places: &BTreeMap<&str, usize>, problems: &mut Vec<String>) -> Vec<usize> {
    let mut before = Vec::with_capacity(node.after.len());
    for (n, name) in node.after.iter().enumerate() {
        match places.get(name.as_str()) {
            Some(place) if *place == at => {
                problems.push(format!("nodes[{at}].after[{n}] is the node itself, {name:?}; take it out"));
            }
            Some(place) => before.push(*place),
            None => problems.push(format!(
                "nodes[{at}].after[{n}] is {name:?}, and there is no such node; write the nodeId of another one"
            )),
        }
    }
    before.sort_unstable();
    before.dedup();
    before
}

/// Those that can begin, again and again; what is part of a circle, or comes after one, never can.
fn sorted(before: &[Vec<usize>]) -> Vec<usize> {
    let mut open: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (at, before) in before.iter().enumerate() {
        before.iter().for_each(|place| after[*place].push(at));
    }
    let mut order: Vec<usize> = (0..before.len()).filter(|at| open[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for place in &after[at] {
            open[*place] -= 1;
            if open[*place] == 0 {
                order.push(*place);
            }
        }
    }
    order
}

/// One circle, by names. Every node that never begins waits for one that never begins either: whoever follows that
/// comes to a node twice.
fn circle(nodes: &[Node], before: &[Vec<usize>], order: &[usize]) -> String {
    let mut begins = vec![false; nodes.len()];
    order.iter().for_each(|at| begins[*at] = true);
    let mut path: Vec<usize> = Vec::new();
    let mut at = (0..nodes.len()).find(|at| !begins[*at]).unwrap_or(0);
    while !path.contains(&at) {
        path.push(at);
        at = before[at].iter().copied().find(|place| !begins[*place]).unwrap_or(at);
    }
    let start = path.iter().position(|place| *place == at).unwrap_or(0);
    let mut names: Vec<String> =
        path[start..].iter().rev().map(|place| format!("{:?}", nodes[*place].node_id)).collect();
    let (first, count) = (names[0].clone(), names.len());
    if count > CIRCLE_SHOWN {
        names.truncate(CIRCLE_SHOWN);
        names.push(format!("… {} more …", count - CIRCLE_SHOWN));
    }
    names.push(first);
    let place = path[start..].iter().min().copied().unwrap_or(0);
    format!(
        "nodes[{place}].after closes a circle: {}; take one of these out of the \"after\" of the next",
        names.join(" → ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Json, NewJob};
    use crate::workflow::Workflow;
    use proptest::prelude::*;

    fn nodes(steps: &[(&str, &[&str])]) -> Vec<Node> {
        let task = || NewJob::of_kind("task", Json::parse("1").unwrap());
        let add = |workflow: Workflow, (id, after): &(&str, &[&str])| {
            workflow.node(*id, task()).after(after.iter().copied())
        };
        steps.iter().fold(Workflow::new(), add).nodes
    }

    #[test]
    fn each_comes_after_all_that_it_waits_for() {
        let order =
            Order::of(&nodes(&[("d", &["b", "c", "b"]), ("b", &["a"]), ("c", &["a"]), ("a", &[])])).unwrap();
        assert_eq!(order.places, [3, 1, 2, 0]);
        assert_eq!((order.before[0].as_slice(), order.last.as_slice()), (&[1, 2][..], &[0][..]));
    }

    #[test]
    fn every_mistake_has_its_place_and_says_what_to_write() {
        let long = "x".repeat(NODE_ID_BYTES_MAX + 1);
        let wrong = nodes(&[("a", &[]), ("a", &[]), ("", &[]), (&long, &[]), ("b", &["c", "b"])]);
        let problems = Order::of(&wrong).unwrap_err().join("\n");
        for says in [
            "nodes[1].nodeId is \"a\", as nodes[0]'s is",
            "nodes[2].nodeId has 0 bytes",
            "nodes[3].nodeId has 250 bytes; write 1 to 249",
            "nodes[4].after[0] is \"c\", and there is no such node",
            "nodes[4].after[1] is the node itself",
        ] {
            assert!(problems.contains(says), "{says}\n{problems}");
        }
        assert!(Order::of(&[]).unwrap_err()[0].contains("write 1 to"));
    }

    #[test]
    fn a_circle_is_shown_from_node_to_node() {
        let wrong = nodes(&[("a", &[]), ("b", &["a", "d"]), ("c", &["b"]), ("d", &["c"]), ("e", &["d"])]);
        let problem = Order::of(&wrong).unwrap_err().remove(0);
        assert!(
            problem.starts_with("nodes[1].after closes a circle: \"c\" → \"d\" → \"b\" → \"c\";"),
            "{problem}"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_can_be_done_in_its_order(edges in prop::collection::vec((0..12usize, 0..12usize), 0..30)) {
            let names: Vec<String> = (0..12).map(|at| format!("n{at}")).collect();
            let mut steps = nodes(&[]);
            for name in &names {
                let mut node = nodes(&[("x", &[])]).remove(0);
                node.node_id = name.clone();
                steps.push(node);
            }
            for (from, to) in &edges {
                steps[*to].after.push(names[*from].clone());
            }
            match Order::of(&steps) {
                Ok(order) => {
                    let place = |at: usize| order.places.iter().position(|other| *other == at).unwrap();
                    prop_assert!(edges.iter().all(|(from, to)| place(*from) < place(*to)));
                }
                Err(problems) => {
                    let names = problems.join(" ");
                    prop_assert!(names.contains("circle") || names.contains("itself"), "{}", names);
                }
            }
        }
    }
}
