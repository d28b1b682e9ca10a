//! `from_sizes`: what is left open, and what does not fit.

use proptest::prelude::*;
use twinkle::axis::Axis;
use twinkle::{Family, Mesh, Order, Requested, Sizes};

const DEFAULT: [&str; 5] = ["fsdp", "pp", "dp", "cp", "tp"];

fn given(sizes: &Sizes, name: &str) -> Option<i128> {
    match name {
        "fsdp" => sizes.fsdp_size,
        "pp" => sizes.pp_size,
        "dp" => sizes.dp_size,
        "cp" => sizes.cp_size,
        _ => sizes.tp_size,
    }
}

fn requests() -> impl Strategy<Value = Sizes> {
    let size = || prop_oneof![3 => Just(None), 5 => (1_i128..5).prop_map(Some), 1 => Just(Some(-1))];
    let world = prop_oneof![Just(None), (1_i128..40).prop_map(Some)];
    (world, size(), size(), size(), size(), size()).prop_map(
        |(world_size, dp_size, fsdp_size, tp_size, pp_size, cp_size)| Sizes {
            world_size,
            dp_size,
            fsdp_size,
            tp_size,
            pp_size,
            cp_size,
            ..Sizes::default()
        },
    )
}

/// Every assignment of the open sizes that fits, found by trying all.
fn fitting(sizes: &Sizes) -> Option<Vec<(&'static str, i128)>> {
    let open: Vec<&str> = DEFAULT.into_iter().filter(|name| given(sizes, name) == Some(-1)).collect();
    let fixed: i128 = DEFAULT.iter().filter_map(|name| given(sizes, name)).filter(|size| *size > 0).product();
    let filled = match (&open[..], sizes.world_size, sizes.dp_size) {
        ([], None, _) => None,
        ([], Some(world), None) => Some(("dp", (1..=world).find(|size| size * fixed == world)?)),
        ([], Some(world), Some(_)) => {
            if fixed != world {
                return None;
            }
            None
        }
        ([only], Some(world), _) => Some((*only, (1..=world).find(|size| size * fixed == world)?)),
        _ => return None,
    };
    let size = |name: &'static str| match filled {
        Some((open, size)) if open == name => Some(size),
        _ => given(sizes, name).or((name == "dp").then_some(1)),
    };
    Some(DEFAULT.into_iter().filter_map(|name| Some((name, size(name)?))).collect())
}

proptest! {
    #[test]
    fn what_is_left_open_is_worked_out_or_refused(sizes in requests()) {
        let made = Mesh::from_sizes(&sizes);
        if let Some(axes) = fitting(&sizes) {
            prop_assert_eq!(made, Mesh::from_axes(&axes, 0, &Requested::default()));
        } else {
            let refusal = made.unwrap_err();
            prop_assert_eq!(refusal.family(), Family::Mesh);
            if let (Some(world), false) = (sizes.world_size, refusal.to_string().contains("both -1")) {
                prop_assert!(refusal.to_string().contains(&world.to_string()), "{}", refusal);
            }
        }
    }

    #[test]
    fn an_order_rearranges_the_axes_and_lacks_none(
        sizes in requests(),
        order in proptest::sample::subsequence(DEFAULT.to_vec(), 1..=5).prop_shuffle(),
    ) {
        let Some(axes) = fitting(&sizes) else { return Ok(()) };
        let names = order.iter().map(|name| (*name).to_owned()).collect();
        let outermost = Mesh::from_sizes(&Sizes { order: Some(Order::OutermostFirst(names)), ..sizes.clone() });
        let fastest: Vec<&str> = order.iter().rev().copied().collect();
        let megatron = Mesh::from_sizes(&Sizes { order: Some(Order::Megatron(fastest.join("-"))), ..sizes });
        prop_assert_eq!(&outermost, &megatron);
        if let Some((lacking, size)) = axes.iter().find(|(name, size)| *size > 1 && !order.contains(name)) {
            let refusal = outermost.unwrap_err();
            prop_assert_eq!(refusal.family(), Family::Axis);
            prop_assert!(refusal.to_string().contains(&format!("{lacking}_size is {size}")), "{}", refusal);
        } else {
            let mesh = outermost.unwrap();
            let size = |name: &str| axes.iter().find(|(own, _)| *own == name).map_or(1, |(_, size)| *size);
            let expected: Vec<&str> = order.iter().copied().filter(|name| size(name) > 1).collect();
            let found: Vec<&str> = mesh.axes().iter().filter(|axis| axis.size() > 1).map(Axis::name).collect();
            prop_assert_eq!(found, expected);
            prop_assert!(mesh.axes().iter().all(|axis| i128::from(axis.size()) == size(axis.name())));
            prop_assert_eq!(mesh.axes().len(), axes.len());
        }
    }

    #[test]
    fn sizes_below_one_are_refused_by_name(
        place in 0_usize..5,
        size in prop_oneof![Just(0_i128), -1000_i128..-1, Just(i128::MIN), (1_i128 << 63)..i128::MAX],
    ) {
        let mut sizes = Sizes { world_size: Some(8), ..Sizes::default() };
        let field = match DEFAULT[place] {
            "fsdp" => &mut sizes.fsdp_size,
            "pp" => &mut sizes.pp_size,
            "dp" => &mut sizes.dp_size,
            "cp" => &mut sizes.cp_size,
            _ => &mut sizes.tp_size,
        };
        *field = Some(size);
        let refusal = Mesh::from_sizes(&sizes).unwrap_err();
        prop_assert_eq!(refusal.family(), Family::Mesh);
        prop_assert!(refusal.to_string().starts_with(&format!("{}_size is {size};", DEFAULT[place])), "{}", refusal);
    }

    #[test]
    fn zero_and_one_switch_options_off(dp in 1_i128..9, off in 0_i128..2) {
        let off = Some(off);
        let options = Requested { ulysses_size: off, ep_size: off, vpp_size: off, ..Requested::default() };
        let mesh = Mesh::from_axes(&[("dp", dp)], 0, &options).unwrap();
        prop_assert_eq!(&mesh, &Mesh::from_axes(&[("dp", dp)], 0, &Requested::default()).unwrap());
        for option in [-1, -7] {
            for requested in [
                Requested { ulysses_size: Some(option), ..Requested::default() },
                Requested { ep_size: Some(option), ..Requested::default() },
                Requested { vpp_size: Some(option), ..Requested::default() },
                Requested { etp_size: Some(option + 1), ..Requested::default() },
                Requested { ep_fsdp_size: Some(option + 1), ..Requested::default() },
            ] {
                prop_assert_eq!(Mesh::from_axes(&[("dp", dp)], 0, &requested).unwrap_err().family(), Family::Mesh);
            }
        }
    }

    #[test]
    fn ulysses_divides_the_data_ranks_or_is_refused(dp in 1_i128..9, fsdp in 1_i128..9, ulysses in 2_i128..20) {
        let requested = Requested { ulysses_size: Some(ulysses), ..Requested::default() };
        let mesh = Mesh::from_axes(&[("fsdp", fsdp), ("dp", dp), ("tp", 2)], 0, &requested);
        if dp * fsdp % ulysses == 0 {
            prop_assert_eq!(i128::from(mesh.unwrap().data_world_size().unwrap()), dp * fsdp / ulysses);
        } else {
            let refusal = mesh.unwrap_err().to_string();
            for number in [dp, fsdp, ulysses, dp * fsdp] {
                prop_assert!(refusal.contains(&number.to_string()), "{}", refusal);
            }
        }
    }

    #[test]
    fn a_world_that_counts_ulysses_ranks_is_shown_the_call_that_works(
        dp in 1_i128..9,
        ulysses in 2_i128..5,
        tp in 1_i128..4,
    ) {
        let sizes = Sizes {
            world_size: Some(dp * ulysses * tp),
            dp_size: Some(dp),
            tp_size: Some(tp),
            options: Requested { ulysses_size: Some(ulysses), ..Requested::default() },
            ..Sizes::default()
        };
        let refusal = Mesh::from_sizes(&sizes).unwrap_err().to_string();
        prop_assert!(refusal.contains("overlay dp * fsdp"), "{}", refusal);
        let call = format!("world_size={}, dp_size={}", dp * ulysses * tp, dp * ulysses);
        prop_assert!(refusal.contains(&call) && refusal.contains(&format!("ulysses_size={ulysses}")), "{}", refusal);
    }
}
