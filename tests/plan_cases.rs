//! The handed cases of `tests/cases/plan.json`, answered by the core.

use serde_json::Value;
use twinkle::{Balance, CollectFrom, Csr, Fill, Layout, Packing, PlacedAxis, Placement, ShardMove, Topology, Workers};

type Failure = Box<dyn std::error::Error>;

fn cases(section: &str) -> Result<Vec<Value>, Failure> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/plan.json"))?;
    let all: Value = serde_json::from_str(&text)?;
    let cases = all[section].as_array().ok_or("a section of cases is a list")?.clone();
    assert!(!cases.is_empty(), "section {section} has cases");
    Ok(cases)
}

/// A number of a case; 2^63 where there is none, which no case expects.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(1 << 63)
}

fn shards(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap_or(u32::MAX)
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().map(|list| list.iter().map(number).collect()).unwrap_or_default()
}

fn lists(value: &Value) -> Vec<Vec<u64>> {
    value.as_array().map(|list| list.iter().map(numbers).collect()).unwrap_or_default()
}

fn five(moves: &[ShardMove]) -> Vec<Vec<u64>> {
    let five =
        |step: &ShardMove| vec![step.source.into(), step.source_start, step.target.into(), step.target_start, step.len];
    moves.iter().map(five).collect()
}

fn split(case: &Value) -> Result<Layout, Failure> {
    let (rows, count) = (number(&case["n"]), shards(&case["shards"]));
    Ok(match case["split"].as_str() {
        Some("even") => Layout::even(rows, count, 1)?,
        Some("pad") => Layout::padded(rows, count, number(&case["multiple"]), 1)?,
        Some("balanced") => {
            let (equal, group) = (case["equal"] == true, number(&case["group"]));
            Layout::balanced(&numbers(&case["weights"]), count, equal, group, Balance::Greedy)?
        }
        Some("minibatch") => {
            Layout::minibatched(rows, count, shards(&case["minibatches"]), case["rotate"] == true, false, 1)?
        }
        other => return Err(format!("{other:?} is no split").into()),
    })
}

#[test]
fn layouts_are_those_of_the_cases() -> Result<(), Failure> {
    for case in cases("layout")? {
        let layout = split(&case)?;
        let all = 0..layout.shards() as usize;
        let rows: Vec<_> = all.clone().map(|shard| layout.row_numbers(shard)).collect::<Result<_, _>>()?;
        assert_eq!(rows, lists(&case["expect"]["rows"]), "{case}");
        let pads: Vec<_> = all.clone().map(|shard| layout.pads(shard).to_vec()).collect();
        assert_eq!(pads, lists(&case["expect"]["pads"]), "{case}");
        if let Some(loads) = case.get("loads") {
            assert_eq!(layout.loads(), numbers(loads), "{case}");
        }
        if let Some(cuts) = case.get("cuts") {
            for (shard, cuts) in all.zip(cuts.as_array().into_iter().flatten()) {
                let pairs: Vec<_> =
                    layout.cuts(shard).unwrap_or_default().into_iter().map(|(a, b)| vec![a, b]).collect();
                assert_eq!(pairs, lists(cuts), "{case}");
            }
        }
    }
    Ok(())
}

#[test]
fn reshards_are_those_of_the_cases() -> Result<(), Failure> {
    for case in cases("reshard")? {
        let rows = number(&case["n"]);
        let source = Layout::even(rows, shards(&case["from_shards"]), 1)?;
        let target = Layout::even(rows, shards(&case["to_shards"]), 1)?;
        assert_eq!(five(&source.reshard(&target)?), lists(&case["moves"]), "{case}");
    }
    Ok(())
}

#[test]
fn micro_batches_are_those_of_the_cases() -> Result<(), Failure> {
    for case in cases("microbatch")? {
        let lengths: Csr<u64> = lists(&case["lengths"]).into_iter().collect();
        let packing =
            Packing { cap: number(&case["cap"]), align: number(&case["align"]), row_multiple: 1, fill: Fill::Refuse };
        let packed = twinkle::pack(&lengths, None, packing)?;
        let expected: Vec<_> = case["expect"].as_array().into_iter().flatten().map(lists).collect();
        let found: Vec<Vec<_>> =
            packed.into_iter().map(|bins| bins.into_iter().map(|bin| bin.rows).collect()).collect();
        assert_eq!(found, expected, "{case}");
    }
    Ok(())
}

/// Places a mesh whose data axes are dp and fsdp, as a case writes it.
fn placed(mesh: &Value, collect_from: CollectFrom) -> Result<Placement, Failure> {
    let dims: Vec<(&str, u64)> = mesh["dims"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|dim| (dim[0].as_str().unwrap_or_default(), number(&dim[1])))
        .collect();
    let fsdp = dims.iter().find(|(name, _)| *name == "fsdp").map_or(1, |(_, size)| *size);
    let axis = |&(name, size): &(&str, u64)| {
        let weight =
            [("dp", fsdp), ("fsdp", 1)].iter().find(|(axis, _)| *axis == name).map_or(0, |(_, weight)| *weight);
        PlacedAxis { size, weight, stage: name == "pp" }
    };
    let workers = Workers::Blocks(mesh["gpus_per_worker"].as_u64().unwrap_or(1));
    Ok(Placement::new(dims.iter().map(axis).collect(), 1, workers, collect_from)?)
}

#[test]
fn flows_between_meshes_are_those_of_the_cases() -> Result<(), Failure> {
    for case in cases("flow")? {
        assert_eq!(case["collect_from"], "pp_last");
        let (source, target) = (placed(&case["from"], CollectFrom::PpLast)?, placed(&case["to"], CollectFrom::PpLast)?);
        let all = |workers: &[u32]| workers.iter().copied().map(u64::from).collect::<Vec<_>>();
        assert_eq!(all(source.lead()), numbers(&case["from_lead"]), "{case}");
        assert_eq!(all(source.representative()), numbers(&case["from_representative"]), "{case}");
        assert_eq!(all(target.shard_of_worker()), numbers(&case["to_shard_of_worker"]), "{case}");
        let rows = number(&case["n"]);
        let moves = Layout::even(rows, source.shards(), 1)?.reshard(&Layout::even(rows, target.shards(), 1)?)?;
        let routed = twinkle::route(&moves, &source, &target, &Topology::default())?;
        let five: Vec<Vec<u64>> = routed
            .iter()
            .map(|step| vec![step.source.into(), step.source_start, step.target.into(), step.target_start, step.len])
            .collect();
        assert_eq!(five, lists(&case["moves"]), "{case}");
    }
    Ok(())
}
