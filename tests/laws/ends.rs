//! Who is collected from, and who stands at the end of an axis.

use proptest::prelude::*;
use twinkle::Family;

use crate::oracle::{Naive, hybrids, meshes};

fn sorted_where(naive: &Naive, kept: impl Fn(usize) -> bool) -> Vec<u64> {
    let mut ranks: Vec<u64> =
        (0..naive.world_size()).filter(|position| kept(*position)).map(|position| naive.ranks[position]).collect();
    ranks.sort_unstable();
    ranks
}

proptest! {
    #[test]
    fn each_data_rank_is_collected_from_its_lowest_position_of_the_last_stage(
        naive in prop_oneof![meshes().boxed(), hybrids().boxed()],
    ) {
        let mesh = naive.mesh();
        let last = naive.size("pp") - 1;
        let holds = |shard: u64, position: usize| {
            naive.data_rank(position) == shard && naive.index("pp", position) == last
        };
        let first = |shard| (0..naive.world_size()).find(|position| holds(shard, *position)).unwrap();
        let expected: Vec<u64> = (0..naive.data_world_size()).map(|shard| naive.ranks[first(shard)]).collect();
        for (shard, rank) in expected.iter().enumerate() {
            prop_assert_eq!(mesh.representative(shard as i128), Ok(*rank));
        }
        prop_assert_eq!(mesh.collect_ranks(), Ok(expected));
        for outside in [-1, i128::from(naive.data_world_size()), i128::MAX] {
            prop_assert_eq!(mesh.representative(outside).unwrap_err().family(), Family::Rank);
        }
    }

    #[test]
    fn stages_and_last_ranks_are_ascending_ranks(naive in meshes()) {
        let mesh = naive.mesh();
        let stages = naive.size("pp");
        for stage in 0..stages {
            let expected = sorted_where(&naive, |position| naive.index("pp", position) == stage);
            prop_assert_eq!(mesh.stage_ranks(i128::from(stage)), Ok(expected));
        }
        for stage in [-1, i128::from(stages), i128::MAX] {
            let refusal = mesh.stage_ranks(stage).unwrap_err();
            prop_assert_eq!(refusal.family(), Family::Rank);
            prop_assert!(refusal.to_string().contains(&stage.to_string()));
            prop_assert!(refusal.to_string().contains(&stages.to_string()));
        }
        for name in ["tp", "pp"] {
            let expected = sorted_where(&naive, |position| naive.index(name, position) == naive.size(name) - 1);
            prop_assert_eq!(mesh.last_ranks(name), Ok(expected));
        }
    }

    #[test]
    fn a_rank_is_at_an_end_exactly_where_its_list_has_it(naive in meshes(), other in 0_u64..2000) {
        let mesh = naive.mesh();
        for rank in naive.ranks.iter().copied().chain([other]) {
            let there = naive.ranks.contains(&rank);
            let listed = |ranks: Vec<u64>| Ok(there && ranks.contains(&rank));
            prop_assert_eq!(mesh.is_at_end("pp", rank, false), listed(mesh.stage_ranks(0).unwrap()));
            prop_assert_eq!(mesh.is_at_end("pp", rank, true), listed(mesh.last_ranks("pp").unwrap()));
            prop_assert_eq!(mesh.is_at_end("tp", rank, true), listed(mesh.last_ranks("tp").unwrap()));
        }
    }
}
