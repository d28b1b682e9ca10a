//! Derived meshes: parts, other orders, merged and split axes.

use proptest::prelude::*;
use twinkle::{Family, Mesh, Requested};

use crate::oracle::{Naive, coordinates, hybrids, hybrids_and_axes, meshes, meshes_and_axes};

/// The ranks of `axes` in that order, all other axes as at `position`.
fn part(naive: &Naive, axes: &[&str], position: usize) -> Vec<u64> {
    let sizes: Vec<u64> = axes.iter().map(|axis| naive.size(axis)).collect();
    let at = |inside: &Vec<u64>| {
        let mut wanted = naive.coordinates[position].clone();
        for (axis, index) in axes.iter().zip(inside) {
            let place = naive.names.iter().position(|name| name == axis).unwrap();
            wanted[place] = *index;
        }
        naive.ranks[naive.coordinates.iter().position(|own| *own == wanted).unwrap()]
    };
    coordinates(&sizes).iter().map(at).collect()
}

fn listed(mesh: &Mesh) -> Vec<u64> {
    (0..mesh.world_size()).map(|position| mesh.rank_at(i128::from(position)).unwrap()).collect()
}

fn names(mesh: &Mesh) -> Vec<&str> {
    mesh.axes().iter().map(twinkle::axis::Axis::name).collect()
}

fn parts(naive: &Naive, axes: &[&'static str]) -> Vec<(&'static str, i128)> {
    axes.iter().map(|axis| (*axis, i128::from(naive.size(axis)))).collect()
}

proptest! {
    #[test]
    fn a_submesh_is_the_part_through_a_rank_in_the_order_asked(
        (naive, axes) in meshes_and_axes(),
        at in any::<prop::sample::Index>(),
    ) {
        let (mesh, position) = (naive.mesh(), at.index(naive.world_size()));
        let rank = naive.ranks[position];
        let sub = mesh.submesh(&axes, i128::from(rank)).unwrap();
        let ranks = part(&naive, &axes, position);
        let all_data = ["dp", "fsdp"].iter().all(|axis| naive.size(axis) == 1 || axes.contains(axis));
        let ulysses = if all_data { naive.ulysses } else { 1 };
        let sizes = axes.iter().map(|axis| naive.size(axis)).collect();
        let expected = Naive::new(axes.clone(), sizes, ranks.clone(), ulysses).mesh();
        prop_assert_eq!(&sub, &expected);
        prop_assert!(sub.coord_of(rank).is_some());
        let mut group = mesh.group_of(&mesh.along(&axes).unwrap(), i128::from(rank)).unwrap().to_vec();
        let mut ranks = ranks;
        group.sort_unstable();
        ranks.sort_unstable();
        prop_assert_eq!(group, ranks);
        if ulysses == naive.ulysses && all_data {
            prop_assert_eq!(sub.data_rank_of(rank), mesh.data_rank_of(rank));
        }
    }

    #[test]
    fn an_undeclared_axis_of_a_submesh_has_size_one(naive in meshes()) {
        let sub = naive.mesh().submesh(&["etp", "ep"], i128::from(naive.ranks[0])).unwrap();
        prop_assert_eq!(names(&sub), ["etp", "ep"]);
        prop_assert_eq!(listed(&sub), [naive.ranks[0]]);
    }

    #[test]
    fn options_about_experts_and_stages_do_not_reach_a_submesh(pp in 2_i128..4, tp in 1_i128..4, ep in 2_i128..4) {
        let requested = Requested {
            ep_size: Some(ep),
            etp_size: Some(1),
            vpp_size: Some(2),
            sequence_parallel: true,
            ..Requested::default()
        };
        let mesh = Mesh::from_axes(&[("pp", pp), ("dp", ep * 2), ("tp", tp)], 0, &requested).unwrap();
        let sub = mesh.submesh(&["pp", "dp"], 0).unwrap();
        prop_assert_eq!(sub.options().requested(), Requested { sequence_parallel: true, ..Requested::default() });
    }

    #[test]
    fn permuting_back_undoes_a_permutation((naive, order) in meshes().prop_flat_map(|naive| {
        let order = Just(naive.names.clone()).prop_shuffle();
        (Just(naive), order)
    })) {
        let mesh = naive.mesh();
        let permuted = mesh.permute(&order).unwrap();
        let sizes = order.iter().map(|axis| naive.size(axis)).collect();
        let expected = Naive::new(order.clone(), sizes, part(&naive, &order, 0), naive.ulysses).mesh();
        prop_assert_eq!(&permuted, &expected);
        prop_assert_eq!(&permuted.permute(&naive.names).unwrap(), &mesh);
        for &rank in &naive.ranks {
            prop_assert_eq!(permuted.data_rank_of(rank), mesh.data_rank_of(rank));
        }
        prop_assert!(order.len() < 2 || mesh.permute(&order[1..]).is_err());
    }

    #[test]
    fn a_merged_axis_counts_its_parts_in_the_order_asked((naive, axes) in meshes_and_axes()) {
        let merged = naive.mesh().flatten(&axes, "merged").unwrap();
        let outermost = naive.names.iter().position(|name| axes.contains(name)).unwrap();
        let mut order: Vec<&str> = naive.names.iter().copied().filter(|name| !axes.contains(name)).collect();
        let mut expected = order.clone();
        order.splice(outermost..outermost, axes.iter().copied());
        expected.insert(outermost, "merged");
        prop_assert_eq!(names(&merged), expected);
        prop_assert_eq!(listed(&merged), part(&naive, &order, 0));
        for &rank in &naive.ranks {
            let along = merged.along(&["merged"]).unwrap();
            let mut group = merged.group_of(&along, i128::from(rank)).unwrap().to_vec();
            let mesh = naive.mesh();
            let mut own = mesh.group_of(&mesh.along(&axes).unwrap(), i128::from(rank)).unwrap().to_vec();
            group.sort_unstable();
            own.sort_unstable();
            prop_assert_eq!(group, own);
        }
    }

    #[test]
    fn splitting_undoes_merging_any_axes_in_any_order((naive, axes) in meshes_and_axes()) {
        let mesh = naive.mesh();
        let merged = mesh.flatten(&axes, "merged").unwrap();
        prop_assert_ne!(&merged, &mesh);
        prop_assert_eq!(&merged.split("merged", &parts(&naive, &axes)).unwrap(), &mesh);
    }

    #[test]
    fn splitting_undoes_two_merges_last_one_first((naive, axes) in meshes_and_axes(), count in 1_usize..4) {
        let (mesh, count) = (naive.mesh(), count.min(axes.len()));
        let once = mesh.flatten(&axes[..count], "inner").unwrap();
        let mut outer: Vec<&'static str> = axes[count..].to_vec();
        outer.push("inner");
        let twice = once.flatten(&outer, "outer").unwrap();
        let size = parts(&naive, &axes[..count]).iter().map(|(_, size)| size).product();
        let mut sizes = parts(&naive, &axes[count..]);
        sizes.push(("inner", size));
        let back = twice.split("outer", &sizes).unwrap();
        prop_assert_eq!(&back, &once);
        prop_assert_eq!(&back.split("inner", &parts(&naive, &axes[..count])).unwrap(), &mesh);
    }

    #[test]
    fn merging_keeps_every_option_for_the_split((naive, axes) in hybrids_and_axes(), vpp in 2_i128..4) {
        let experts = i128::from(naive.size("tp"));
        let requested = Requested {
            vpp_size: (naive.size("pp") > 1).then_some(vpp),
            ep_size: Some(experts),
            etp_size: Some(1),
            sequence_parallel: true,
            ..naive.requested()
        };
        let mesh = naive.mesh().with_options(&requested).unwrap();
        let merged = mesh.flatten(&axes, "merged").unwrap();
        prop_assert_eq!(merged.etp_world_size(), mesh.etp_world_size());
        prop_assert_eq!(&merged.split("merged", &parts(&naive, &axes)).unwrap(), &mesh);
        let follows = mesh.with_options(&Requested::default()).unwrap();
        prop_assert_eq!(follows.flatten(&axes, "merged").unwrap().etp_world_size(), follows.etp_world_size());
    }

    #[test]
    fn a_part_of_a_view_keeps_ulysses_only_with_every_data_axis((naive, axes) in hybrids_and_axes()) {
        let view = naive.mesh().flatten(&axes, "merged").unwrap();
        let rank = i128::from(naive.ranks[0]);
        let others: Vec<&str> = naive.names.iter().copied().filter(|name| !axes.contains(name)).collect();
        if others.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(view.submesh(&others, rank).unwrap().options().ulysses, None);
        let all: Vec<&str> = others.into_iter().chain(["merged"]).collect();
        prop_assert_eq!(view.submesh(&all, rank).unwrap().options().ulysses, Some(naive.ulysses));
    }

    #[test]
    fn a_merged_axis_splits_into_nothing_but_its_parts(naive in meshes()) {
        if naive.names.len() < 2 {
            return Ok(());
        }
        let merged = naive.mesh().flatten(&naive.names, "merged").unwrap();
        let mut other = parts(&naive, &naive.names);
        other.reverse();
        let refusal = merged.split("merged", &other).unwrap_err();
        prop_assert_eq!(refusal.family(), Family::Axis);
        for name in &naive.names {
            let part = format!("{name}={}", naive.size(name));
            prop_assert!(refusal.to_string().contains(&part));
        }
    }

    #[test]
    fn a_merged_data_axis_makes_a_view_that_answers_nothing_about_rows((naive, axes) in hybrids_and_axes()) {
        let view = naive.mesh().flatten(&axes, "merged").unwrap();
        let rank = i128::from(naive.ranks[0]);
        let refusals = [
            view.data_world_size().unwrap_err(),
            view.data_rank_of(naive.ranks[0]).unwrap_err(),
            view.collect_ranks().unwrap_err(),
            view.representative(0).unwrap_err(),
            view.rows_of_rank(8, rank).unwrap_err(),
            view.rows_of_data_rank(8, 0).unwrap_err(),
            view.write_slices(8, |_, _| ()).unwrap_err(),
            view.write_data_ranks(&mut vec![0_i32; naive.world_size()]).unwrap_err(),
            view.along(&["data"]).unwrap_err(),
        ];
        for refusal in refusals {
            prop_assert_eq!(refusal.family(), Family::Axis);
            prop_assert!(refusal.to_string().contains("split"), "{}", refusal);
        }
        prop_assert_eq!(view.along(&["ulysses"]).unwrap_err().family(), Family::Axis);
        for axis in axes {
            prop_assert!(view.size_of(axis).unwrap_err().to_string().contains("merged"));
            prop_assert!(view.along(&[axis]).unwrap_err().to_string().contains("merged"));
        }
    }

    #[test]
    fn merged_other_axes_leave_the_rows_alone((naive, axes) in meshes_and_axes()) {
        let axes: Vec<&str> = axes.into_iter().filter(|axis| !["dp", "fsdp"].contains(axis)).collect();
        if axes.is_empty() {
            return Ok(());
        }
        let merged = naive.mesh().flatten(&axes, "merged").unwrap();
        for (position, &rank) in naive.ranks.iter().enumerate() {
            prop_assert_eq!(merged.data_rank_of(rank), Ok(Some(naive.data_rank(position))));
        }
    }

    #[test]
    fn data_axes_in_data_order_merge_as_dp(naive in hybrids()) {
        let merged = naive.mesh().flatten(&["dp", "fsdp"], "dp").unwrap();
        for (position, &rank) in naive.ranks.iter().enumerate() {
            prop_assert_eq!(merged.data_rank_of(rank), Ok(Some(naive.data_rank(position))));
        }
        prop_assert_eq!(merged.data_world_size(), Ok(naive.data_world_size()));
        prop_assert!(naive.mesh().flatten(&["fsdp", "dp"], "dp").is_err());
        prop_assert!(naive.mesh().flatten(&["dp", "fsdp"], "tp").is_err());
    }

    #[test]
    fn a_plain_axis_splits_outermost_first(naive in meshes(), first in 1_i128..4, second in 1_i128..4) {
        let count = i128::from(naive.sizes[0]);
        let mesh = Naive { ulysses: 1, ..naive.clone() }.mesh();
        let split = mesh.split(naive.names[0], &[("upper", first), ("lower", second)]);
        if first * second == count {
            let split = split.unwrap();
            prop_assert_eq!(listed(&split), naive.ranks);
            prop_assert_eq!(&names(&split)[..2], &["upper", "lower"]);
        } else {
            let refusal = split.unwrap_err().to_string();
            prop_assert!(refusal.contains(&count.to_string()) && refusal.contains(&(first * second).to_string()));
        }
    }

    #[test]
    fn new_names_do_not_take_the_place_of_others(naive in meshes()) {
        let mesh = naive.mesh();
        for name in ["dp_rank", "_x", "zeile", "ax1s"] {
            prop_assert!(mesh.flatten(&naive.names[..1], name).is_ok());
        }
        for name in ["", "1x", "a b", "data", "a-b", "tp", "sp", "ep"] {
            prop_assert_eq!(mesh.flatten(&naive.names[..1], name).unwrap_err().family(), Family::Axis);
        }
    }
}
