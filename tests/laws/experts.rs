//! Megatron's order and the meshes of experts.

use proptest::prelude::*;
use proptest::sample::select;
use twinkle::{ExpertLayout, Family, Mesh, Order, Requested, Sizes};

/// An order of tp, cp, dp and pp, fastest first, with ep right before the first of dp and pp.
fn orders() -> impl Strategy<Value = Vec<&'static str>> {
    Just(vec!["tp", "cp", "dp", "pp"]).prop_shuffle().prop_map(|mut order| {
        let first = order.iter().position(|name| ["dp", "pp"].contains(name)).unwrap();
        order.insert(first, "ep");
        order
    })
}

/// Sizes of tp, cp, dp and pp.
fn dense() -> impl Strategy<Value = [i128; 4]> {
    prop::array::uniform4(select(vec![1_i128, 2, 3, 4]))
}

fn sizes([tp, cp, dp, pp]: [i128; 4], order: &[&str]) -> Sizes {
    Sizes {
        tp_size: Some(tp),
        cp_size: Some(cp),
        dp_size: Some(dp),
        pp_size: Some(pp),
        order: Some(Order::Megatron(order.join("-"))),
        ..Sizes::default()
    }
}

/// The ranks between two pipeline stages when the axes before pp have these sizes.
fn apart(order: &[&str], size: impl Fn(&str) -> i128) -> i128 {
    order.iter().take_while(|name| **name != "pp").map(|name| size(name)).product()
}

proptest! {
    #[test]
    fn the_order_is_the_string_that_made_the_mesh(order in orders(), dense in dense()) {
        let mesh = Mesh::from_sizes(&sizes(dense, &order)).unwrap();
        prop_assert_eq!(mesh.order(), Ok(order.join("-")));
    }

    #[test]
    fn an_order_makes_the_mesh_it_was_read_from(
        order in orders(),
        dense in dense(),
        given in prop::array::uniform4(any::<bool>()),
    ) {
        let mut some = sizes(dense, &order);
        let open = |size: &mut Option<i128>, given: bool| if !given { *size = None };
        open(&mut some.tp_size, given[0]);
        open(&mut some.cp_size, given[1]);
        open(&mut some.pp_size, given[2]);
        let mesh = Mesh::from_sizes(&some).unwrap();
        some.order = Some(Order::Megatron(mesh.order().unwrap()));
        prop_assert_eq!(Mesh::from_sizes(&some), Ok(mesh));
    }

    #[test]
    fn experts_are_laid_as_the_order_says_without_cp(
        order in orders(),
        dense in dense(),
        ep in 1_i128..5,
        etp in 1_i128..5,
    ) {
        let [tp, cp, dp, pp] = dense;
        let world = tp * cp * dp * pp;
        let mut sizes = sizes(dense, &order);
        sizes.options = Requested { ep_size: Some(ep), etp_size: Some(etp), ..Requested::default() };
        let mesh = Mesh::from_sizes(&sizes);
        if world % (pp * ep * etp) != 0 {
            let refusal = mesh.unwrap_err();
            prop_assert_eq!(refusal.family(), Family::Mesh);
            for number in [pp, ep, etp, world] {
                prop_assert!(refusal.to_string().contains(&number.to_string()));
            }
            return Ok(());
        }
        let expert_dp = world / (pp * ep * etp);
        let expert_size = |name: &str| match name { "tp" => etp, "ep" => ep, "dp" => expert_dp, "pp" => pp, _ => 1 };
        let dense_size = |name: &str| match name { "tp" => tp, "cp" => cp, "dp" => dp, "pp" => pp, _ => 1 };
        let experts = mesh.unwrap().expert_mesh(ExpertLayout::Megatron);
        if pp > 1 && apart(&order, expert_size) != apart(&order, dense_size) {
            prop_assert_eq!(experts.unwrap_err().family(), Family::Mesh);
            return Ok(());
        }
        let axes: Vec<(&str, i128)> = order
            .iter()
            .rev()
            .filter(|name| **name != "cp")
            .map(|name| (if *name == "tp" { "etp" } else { *name }, expert_size(name)))
            .collect();
        prop_assert_eq!(experts, Mesh::from_axes(&axes, 0, &Requested::default()));
    }

    #[test]
    fn the_fsdp_layout_has_two_axes_over_the_whole_world(dense in dense(), ep in 1_i128..5, offset in 0_i128..9) {
        let [tp, cp, dp, pp] = dense;
        let world = tp * cp * dp * pp;
        let requested = Requested { ep_size: Some(ep), etp_size: Some(1), ..Requested::default() };
        let mesh = Mesh::from_axes(&[("fsdp", pp), ("dp", dp), ("cp", cp), ("tp", tp)], offset, &requested);
        prop_assert_eq!(mesh.is_ok(), world % ep == 0);
        let Ok(mesh) = mesh else { return Ok(()) };
        let experts = mesh.expert_mesh(ExpertLayout::Fsdp);
        let expected = Mesh::from_axes(&[("ep", ep), ("ep_fsdp", world / ep)], offset, &Requested::default());
        prop_assert_eq!(&experts, &expected);
        prop_assert_eq!(experts.unwrap().data_world_size().unwrap_err().family(), Family::Axis);
        prop_assert_eq!(mesh.ep_fsdp_size(), (ep > 1).then(|| u64::try_from(world / ep).unwrap()));
    }

    #[test]
    fn a_mesh_with_an_fsdp_axis_or_other_strides_has_no_order(fsdp in 2_i128..5, dp in 2_u64..5) {
        let none = Requested::default();
        let sharded = Mesh::from_axes(&[("fsdp", fsdp), ("dp", 2)], 0, &none).unwrap();
        prop_assert!(sharded.order().unwrap_err().to_string().contains("fsdp"));
        prop_assert!(sharded.expert_mesh(ExpertLayout::Megatron).is_err());
        let strided = Mesh::from_table(&["dp"], &[dp], (0..dp).map(|rank| 3 * rank).collect(), &none).unwrap();
        prop_assert!(strided.order().unwrap_err().to_string().contains("consecutive"));
        prop_assert!(strided.expert_mesh(ExpertLayout::Fsdp).is_err());
    }
}
