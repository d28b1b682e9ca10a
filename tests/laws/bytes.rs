//! Meshes as bytes: read back as they were, and nothing else is read.

use proptest::prelude::*;
use twinkle::{Entry, Mesh, Requested};

use crate::oracle::{meshes, meshes_and_axes};
use crate::values::hashed;

/// A mesh that was read must answer, and be written as it was read.
fn sound(mesh: &Mesh) {
    assert!(mesh.world_size() >= 1 && mesh.world_size() < 1 << 63);
    for position in [0, mesh.world_size() / 2, mesh.world_size() - 1] {
        let rank = mesh.rank_at(i128::from(position)).unwrap();
        assert!(rank < 1 << 63);
        assert_eq!(mesh.position_of(rank), Some(position));
    }
    for axis in mesh.axes() {
        let along = mesh.along(&[axis.name()]).unwrap();
        assert_eq!(mesh.group_size(&along), axis.size());
    }
    let _ = (mesh.collect_ranks().map(|ranks| ranks.len()), mesh.order(), mesh.data_world_size());
    let bytes = mesh.to_bytes().unwrap();
    assert_eq!(&Mesh::from_bytes(&bytes).unwrap(), mesh);
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let name = prop_oneof!["dp|fsdp|tp|pp|cp|ep|etp|x|y|rows", ".{0,4}"];
    let size = prop_oneof![0_u64..5, any::<u64>()];
    prop::collection::vec((0_u32..4, name, size, 0_u32..4), 0..7)
}

fn requests() -> impl Strategy<Value = Requested> {
    let size = || prop_oneof![Just(None), (-1_i128..5).prop_map(Some), any::<i128>().prop_map(Some)];
    (size(), size(), size(), size(), size(), any::<bool>()).prop_map(
        |(ulysses_size, ep_size, etp_size, ep_fsdp_size, vpp_size, sequence_parallel)| Requested {
            ulysses_size,
            ep_size,
            etp_size,
            ep_fsdp_size,
            vpp_size,
            sequence_parallel,
        },
    )
}

proptest! {
    #[test]
    fn bytes_are_read_back_as_the_same_mesh(naive in meshes()) {
        let mesh = naive.mesh();
        let bytes = mesh.to_bytes().unwrap();
        let read = Mesh::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&read, &mesh);
        prop_assert_eq!(hashed(&read), hashed(&mesh));
        prop_assert_eq!(read.options(), mesh.options());
        let spread = mesh.ranks().highest() - mesh.ranks().lowest();
        let width = (1..8).find(|width| spread >> (8 * width) == 0).unwrap_or(8);
        let table = mesh.ranks().table().map_or(0, |table| table.len() * width);
        prop_assert!(bytes.len() <= table + 250, "{} bytes", bytes.len());
    }

    #[test]
    fn entries_are_read_back_as_the_same_mesh((naive, axes) in meshes_and_axes()) {
        let mesh = if axes.is_empty() { naive.mesh() } else { naive.mesh().flatten(&axes, "merged").unwrap() };
        let requested = mesh.options().requested();
        let read = match mesh.ranks().strides() {
            Some(strides) => Mesh::from_entries(mesh.entries(), mesh.ranks().offset(), strides, &requested),
            None => Mesh::from_entries_and_table(mesh.entries(), mesh.ranks().table().unwrap().to_vec(), &requested),
        };
        prop_assert_eq!(read.as_ref(), Ok(&mesh));
        prop_assert_eq!(&Mesh::from_bytes(&mesh.to_bytes().unwrap()).unwrap(), &mesh);
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_make_a_sound_mesh(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(mesh) = Mesh::from_bytes(&bytes) {
            sound(&mesh);
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_make_a_sound_mesh(
        (naive, axes) in meshes_and_axes(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mesh = naive.mesh();
        let mesh = if axes.is_empty() { mesh } else { mesh.flatten(&axes, "merged").unwrap() };
        let whole = mesh.to_bytes().unwrap();
        let mut bytes = whole.clone();
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Ok(mesh) = Mesh::from_bytes(&bytes) {
            sound(&mesh);
        }
        prop_assert!(Mesh::from_bytes(&whole[..cut.index(whole.len())]).is_err());
        bytes = whole;
        bytes.push(0);
        prop_assert!(Mesh::from_bytes(&bytes).is_err());
    }

    #[test]
    fn arbitrary_entries_are_refused_or_make_a_sound_mesh(
        entries in entries(),
        offset in prop_oneof![0_u64..9, any::<u64>()],
        strides in prop::collection::vec(prop_oneof![-5_i64..5, any::<i64>()], 0..5),
        ranks in prop::collection::vec(prop_oneof![0_u64..9, any::<u64>()], 0..9),
        requested in requests(),
    ) {
        for mesh in [
            Mesh::from_entries(entries.clone(), offset, &strides, &requested),
            Mesh::from_entries_and_table(entries, ranks, &requested),
        ].into_iter().flatten() {
            sound(&mesh);
        }
    }

    #[test]
    fn arbitrary_sizes_are_refused_or_make_a_sound_mesh(
        axes in prop::collection::vec(
            ("dp|fsdp|tp|pp|cp|ulysses|ep|etp|ep_fsdp|sp|ddp|.{0,3}", prop_oneof![1_i128..9, any::<i128>()]),
            0..5,
        ),
        offset in prop_oneof![0_i128..9, any::<i128>()],
        requested in requests(),
    ) {
        let axes: Vec<(&str, i128)> = axes.iter().map(|(name, size)| (&**name, *size)).collect();
        if let Ok(mesh) = Mesh::from_axes(&axes, offset, &requested) {
            sound(&mesh);
        }
        if let Some((name, size)) = axes.first()
            && let Ok(mesh) = Mesh::from_range(name, offset, *size, u64::try_from(*size).unwrap_or(3), &requested)
        {
            sound(&mesh);
        }
    }
}
