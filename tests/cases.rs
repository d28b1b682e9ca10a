//! The handed cases of meshes, as far as the core's types can express them; Python reads the same files.

#![expect(clippy::unwrap_used, reason = "a case that cannot be read has failed")]

use serde_json::{Map, Value};
use twinkle::{ExpertLayout, Mesh, Order, Requested, Sizes};

/// Sizes of a kind that only Python can be given.
const ONLY_PYTHON: [&str; 3] = ["bool", "float", "text"];

fn cases(text: &str) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(!cases.is_empty());
    cases
}

fn id(case: &Value) -> &str {
    case["id"].as_str().unwrap()
}

fn sizes(given: &Map<String, Value>) -> Sizes {
    let mut sizes = Sizes::default();
    for (name, value) in given {
        let size = value.as_i64().map(i128::from);
        match &**name {
            "world_size" => sizes.world_size = size,
            "dp_size" => sizes.dp_size = size,
            "fsdp_size" => sizes.fsdp_size = size,
            "tp_size" => sizes.tp_size = size,
            "pp_size" => sizes.pp_size = size,
            "cp_size" => sizes.cp_size = size,
            "order" => {
                sizes.order = Some(match value.as_str() {
                    Some(text) => Order::Megatron(text.to_owned()),
                    None => Order::OutermostFirst(texts(value)),
                });
            }
            // The core knows no devices.
            "device_type" => {}
            _ => option(&mut sizes.options, name, value),
        }
    }
    sizes
}

fn option(requested: &mut Requested, name: &str, value: &Value) {
    let size = value.as_i64().map(i128::from);
    match name {
        "ulysses_size" => requested.ulysses_size = size,
        "ep_size" => requested.ep_size = size,
        "etp_size" => requested.etp_size = size,
        "ep_fsdp_size" => requested.ep_fsdp_size = size,
        "vpp_size" => requested.vpp_size = size,
        "sequence_parallel" => requested.sequence_parallel = value.as_bool().unwrap(),
        _ => unreachable!("no option is called {name}"),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

fn rows(value: &Value) -> Vec<Vec<u64>> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

/// The shape and the flat ranks of a nested list.
fn table(nested: &Value) -> (Vec<u64>, Vec<u64>) {
    let Some(inner) = nested.as_array() else { return (vec![], vec![nested.as_u64().unwrap()]) };
    let parts: Vec<_> = inner.iter().map(table).collect();
    let mut shape = vec![inner.len() as u64];
    shape.extend(&parts[0].0);
    (shape, parts.into_iter().flat_map(|(_, ranks)| ranks).collect())
}

fn made(case: &Value) -> Mesh {
    if let Some(given) = case["from_sizes"].as_object() {
        return Mesh::from_sizes(&sizes(given)).unwrap();
    }
    let names = texts(&case["mesh_dim_names"]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (shape, ranks) = table(&case["mesh"]);
    let mut requested = Requested::default();
    case["options"].as_object().unwrap().iter().for_each(|(name, value)| option(&mut requested, name, value));
    Mesh::from_table(&names, &shape, ranks, &requested).unwrap()
}

fn groups(mesh: &Mesh, axes: &[&str]) -> Vec<Vec<u64>> {
    let along = mesh.along(axes).unwrap();
    let (_, size) = mesh.groups_shape(&along);
    let mut flat = vec![0_i32; usize::try_from(mesh.world_size()).unwrap()];
    mesh.write_groups(&along, &mut flat).unwrap();
    let group = |row: &[i32]| row.iter().map(|rank| u64::try_from(*rank).unwrap()).collect();
    flat.chunks(usize::try_from(size).unwrap()).map(group).collect()
}

fn names(mesh: &Mesh) -> Vec<&str> {
    mesh.axes().iter().map(twinkle::axis::Axis::name).collect()
}

fn slices(mesh: &Mesh, total: i128) -> Vec<Vec<u64>> {
    let mut rows = vec![];
    mesh.write_slices(total, |start, stop| rows.push(vec![start, stop])).unwrap();
    rows
}

/// Checks one named expectation of a mesh case.
fn expect(mesh: &Mesh, what: &str, value: &Value, who: &str) {
    match what {
        "world_size" => assert_eq!(mesh.world_size(), value.as_u64().unwrap(), "{who}"),
        "names" => assert_eq!(names(mesh), texts(value), "{who}"),
        "shape" => assert_eq!(mesh.shape(), numbers(value), "{who}"),
        "data_world_size" => assert_eq!(mesh.data_world_size().unwrap(), value.as_u64().unwrap(), "{who}"),
        "coordinates" => {
            for (rank, expected) in value.as_object().unwrap() {
                let rank: u64 = rank.parse().unwrap();
                let indices: Vec<_> = expected.as_object().unwrap().iter().collect();
                let given: Vec<(&str, i128)> =
                    indices.iter().map(|(name, index)| (name.as_str(), i128::from(index.as_u64().unwrap()))).collect();
                assert_eq!(mesh.rank_of(&given), Ok(rank), "{who}");
                let coordinate = mesh.coord_of(rank).unwrap();
                for (name, index) in names(mesh).iter().zip(coordinate.iter()) {
                    assert_eq!(expected[*name].as_u64(), Some(*index), "{who}: {name} of {rank}");
                }
            }
        }
        "data_rank" => {
            for (rank, expected) in value.as_object().unwrap() {
                let rank = rank.parse().unwrap();
                assert_eq!(mesh.data_rank_of(rank), Ok(expected.as_u64()), "{who}: data rank of {rank}");
            }
        }
        "groups" => {
            for (axes, expected) in value.as_object().unwrap() {
                let axes: Vec<&str> = axes.split(',').collect();
                assert_eq!(groups(mesh, &axes), rows(expected), "{who}: {axes:?}");
                let along = mesh.along(&axes).unwrap();
                for group in rows(expected) {
                    for (index, rank) in (0_u64..).zip(&group) {
                        assert_eq!(
                            mesh.group_of(&along, i128::from(*rank)).unwrap().to_vec(),
                            group,
                            "{who}: {axes:?}"
                        );
                        assert_eq!(mesh.index_in_group(&along, *rank), Some(index), "{who}: {axes:?}");
                    }
                }
            }
        }
        "pp_first_ranks" => assert_eq!(mesh.stage_ranks(0).unwrap(), numbers(value), "{who}"),
        "pp_last_ranks" => assert_eq!(mesh.last_ranks("pp").unwrap(), numbers(value), "{who}"),
        "tp_last_ranks" => assert_eq!(mesh.last_ranks("tp").unwrap(), numbers(value), "{who}"),
        "collect_ranks" => assert_eq!(mesh.collect_ranks().unwrap(), numbers(value), "{who}"),
        "slices" => {
            for (total, expected) in value.as_object().unwrap() {
                assert_eq!(slices(mesh, total.parse().unwrap()), rows(expected), "{who}: {total} rows");
            }
        }
        "data_ranks" => {
            let ranks: Vec<u64> =
                (0..mesh.world_size()).map(|rank| mesh.data_rank_of(rank).unwrap().unwrap()).collect();
            assert_eq!(ranks, numbers(value), "{who}");
        }
        "etp_world_size" => assert_eq!(mesh.etp_world_size(), value.as_u64().unwrap(), "{who}"),
        "ep_fsdp_size" => assert_eq!(mesh.ep_fsdp_size(), value.as_u64(), "{who}"),
        _ => unreachable!("nothing checks {what:?} of {who}"),
    }
}

#[test]
fn meshes_answer_as_the_cases_say() {
    for case in cases(include_str!("cases/mesh.json")) {
        let mesh = made(&case);
        for (what, value) in case["expect"].as_object().unwrap() {
            expect(&mesh, what, value, id(&case));
        }
    }
}

#[test]
fn accepted_sizes_make_the_meshes_the_cases_say() {
    for case in cases(include_str!("cases/accepted.json")) {
        let mesh = made(&case);
        for (what, value) in case.as_object().unwrap() {
            if !["id", "why", "from_sizes"].contains(&&**what) {
                expect(&mesh, what, value, id(&case));
            }
        }
    }
}

#[test]
fn refused_sizes_are_refused_with_the_words_the_cases_say() {
    let mut only_python = vec![];
    for case in cases(include_str!("cases/refusals.json")) {
        let given = case["from_sizes"].as_object().unwrap();
        if ONLY_PYTHON.contains(&id(&case)) {
            only_python.push(id(&case).to_owned());
            continue;
        }
        let refusal = Mesh::from_sizes(&sizes(given)).unwrap_err().to_string();
        for word in texts(&case["must_mention"]) {
            assert!(refusal.contains(&word), "{}: {word:?} is not in {refusal:?}", id(&case));
        }
    }
    assert_eq!(only_python, ONLY_PYTHON);
}

/// The mesh that answers for a group of Megatron's, and the axes it is asked along.
fn megatron<'mesh>(
    dense: &'mesh Mesh,
    experts: &'mesh Mesh,
    group: &str,
    of_experts: bool,
) -> (&'mesh Mesh, Vec<String>) {
    let axes: Vec<String> = group.split('-').map(str::to_owned).collect();
    if of_experts {
        let as_expert = |axis: String| if axis == "tp" { "etp".to_owned() } else { axis };
        return (experts, axes.into_iter().map(as_expert).collect());
    }
    (dense, axes)
}

#[test]
fn groups_are_those_that_megatron_makes() {
    let recorded: Value = serde_json::from_str(include_str!("cases/megatron.json")).unwrap();
    for case in recorded["cases"].as_array().unwrap() {
        let size = |name: &str| i128::from(case[name].as_i64().unwrap());
        let order: Vec<&str> = case["order"].as_str().unwrap().split('-').collect();
        let of_experts = id(case).starts_with("expert");
        // The expert cases give etp as tp and expert data parallel as dp.
        // The expert cases count experts beside tp (their etp) and dp (what is left); the dense mesh holds them in dp.
        let inside = if of_experts { size("ep") } else { 1 };
        let axes: Vec<(&str, i128)> = order
            .iter()
            .rev()
            .filter(|name| **name != "ep")
            .map(|name| (*name, if *name == "dp" { size("dp") * inside } else { size(name) }))
            .collect();
        let ep = Requested { ep_size: Some(size("ep")), ..Requested::default() };
        let dense = Mesh::from_axes(&axes, size("rank_offset"), &ep).unwrap();
        let experts = dense.expert_mesh(ExpertLayout::Megatron).unwrap();
        for (group, expected) in case["groups"].as_object().unwrap() {
            let (mesh, axes) = megatron(&dense, &experts, group, of_experts);
            let axes: Vec<&str> = axes.iter().map(String::as_str).collect();
            assert_eq!(groups(mesh, &axes), rows(expected), "{}: {group}", id(case));
        }
    }
}
