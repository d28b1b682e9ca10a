//! Refusals: every way in which the core says no, in one table.
//!
//! A refusal knows its family (which Python exception it becomes), the numbers and names it is about, and the sentence
//! that tells a user what would be accepted. The binding turns families into exception classes and numbers into their
//! attributes; nothing else in the project writes such a sentence about the core's own rules.

use std::fmt;

/// Which kind of question was refused; each becomes one Python exception class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Sizes, options or a rank table that make no mesh.
    Mesh,
    /// A rank, position, data rank or stage that is not there.
    Rank,
    /// An axis name that is unknown, repeated, missing, or not answerable.
    Axis,
    /// Rows that do not fit a layout.
    Plan,
    /// Workers that do not fit a mesh.
    Placement,
}

/// One number or word that a refusal is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Int(i128),
    /// A word.
    Text(String),
    /// Several numbers.
    Ints(Vec<i128>),
    /// Several words.
    Texts(Vec<String>),
}

macro_rules! from_integers {
    ($($integer:ty),*) => {$(
        impl From<&$integer> for Value {
            fn from(value: &$integer) -> Self {
                Self::Int(i128::from(*value))
            }
        }
        impl From<&Vec<$integer>> for Value {
            fn from(values: &Vec<$integer>) -> Self {
                Self::Ints(values.iter().map(|&value| i128::from(value)).collect())
            }
        }
    )*};
}
from_integers!(i128, u64, u32);

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<&Vec<String>> for Value {
    fn from(values: &Vec<String>) -> Self {
        Self::Texts(values.clone())
    }
}

/// Writes the enum, its sentence, its family and its fields from one row per refusal.
macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident: $family:ident { $($field:ident: $kind:ty),* $(,)? } $sentence:literal;)*) => {
        /// Something the core will not do, with the numbers that say why.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $variant {
                $(#[doc = concat!("The `", stringify!($field), "` that the sentence names.")] $field: $kind,)*
            },)*
        }

        impl Refusal {
            /// The kind of question that was refused.
            #[must_use]
            pub fn family(&self) -> Family {
                match self {
                    $(Self::$variant { .. } => Family::$family,)*
                }
            }

            /// The numbers and names of the refusal, in the order of its fields.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, Value)> {
                match self {
                    $(Self::$variant { $($field),* } => vec![$((stringify!($field), Value::from($field))),*],)*
                }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant { $($field),* } => {
                        $(let _ = $field;)*
                        write!(formatter, $sentence)
                    })*
                }
            }
        }
    };
}

impl std::error::Error for Refusal {}

/// The answer to a question that can be refused.
pub type Answer<T> = Result<T, Refusal>;

refusals! {
    // Numbers of the wrong kind.

    /// A value that is no whole number.
    NotAnInteger: Mesh { what: String, found: String }
        "{what} must be a whole number, not {found}";
    /// A rank, position or stage that is no whole number.
    RankNotAnInteger: Rank { what: String, found: String }
        "{what} must be a whole number, not {found}";
    /// Axis names that are no names.
    AxisNotText: Axis { found: String }
        "axes are a name or a sequence of names such as ('dp', 'tp'), not {found}";

    /// A switch that is no bool.
    NotABool: Mesh { what: String, found: String }
        "{what} must be True or False, not {found}";
    /// An option that no mesh has.
    OptionUnknown: Mesh { name: String }
        "a mesh has no option {name:?}; its options are ulysses_size, ep_size, etp_size, ep_fsdp_size, vpp_size and sequence_parallel";

    // Sizes and options.

    /// A size that is too small or too large.
    SizeOutOfRange: Mesh { name: String, size: i128, least: u64 }
        "{name} is {size}; it must be at least {least} and below 2**63";
    /// A first rank that is negative or leaves no room.
    OffsetOutOfRange: Mesh { offset: i128 }
        "offset is {offset}; it must be at least 0, and every rank below 2**63";
    /// A product of sizes that is too large.
    WorldTooLarge: Mesh { names: Vec<String>, sizes: Vec<u64> }
        "the axes {names:?} of sizes {sizes:?} have 2**63 places or more";
    /// Two sizes of -1.
    TwoOpenSizes: Mesh { first: String, second: String }
        "{first}_size and {second}_size are both -1; only one size can be worked out from the world size";
    /// A size of -1 without a world size.
    OpenSizeWithoutWorld: Mesh { name: String }
        "{name}_size is -1, which is worked out from the world size; give world_size too";
    /// A world that the given sizes do not divide.
    WorldIndivisible: Mesh { world_size: u64, product: u64, sizes: String, open: String, hint: String }
        "world_size {world_size} is not divisible by {product} ({sizes}), so {open}_size cannot be worked out{hint}";
    /// Sizes whose product is not the world size.
    ProductDisagrees: Mesh { world_size: u64, product: u64, sizes: String, hint: String }
        "world_size is {world_size}, but {sizes} = {product}{hint}";
    /// Ulysses ranks that do not divide the data ranks.
    UlyssesIndivisible: Mesh { ulysses: u64, dp: u64, fsdp: u64, data: u64 }
        "ulysses_size {ulysses} does not divide dp * fsdp = {dp} * {fsdp} = {data}; ulysses ranks overlay them";
    /// An option that contradicts a declared axis.
    OptionBesideAxis: Mesh { axis: String, declared: u64, option: u64 }
        "{axis} is declared as an axis of size {declared}, so the option {axis}_size={option} must be left out";
    /// Expert sizes that do not divide the world.
    ExpertsIndivisible: Mesh { pp: u64, ep: u64, etp: u64, product: i128, world_size: u64 }
        "pp * ep * etp = {pp} * {ep} * {etp} = {product} does not divide the world size {world_size}";
    /// Expert shards that do not fill the world.
    ExpertShardsDisagree: Mesh { ep: u64, ep_fsdp: u64, product: i128, world_size: u64 }
        "ep * ep_fsdp = {ep} * {ep_fsdp} = {product}, but it must be the world size {world_size}";
    /// Virtual stages without stages.
    VirtualStagesAlone: Mesh { vpp: u64, pp: u64 }
        "vpp_size {vpp} needs pp_size above 1, but pp_size is {pp}";
    /// An order string with ep where it would have no effect.
    ExpertOrder: Axis { order: String }
        "order {order:?} places ep where it cannot be: ep stands right before the first of dp and pp, as in 'tp-cp-ep-dp-pp'";
    /// An order that forgets an axis.
    OrderLacksAxis: Axis { axis: String, size: u64, order: Vec<String> }
        "{axis}_size is {size}, but the order {order:?} does not name {axis}";

    // Axes and names.

    /// No axis, or too many.
    AxisCount: Mesh { count: u64, limit: u64 }
        "a mesh has 1 to {limit} axes, not {count}";
    /// As many names as dimensions are needed.
    NamesDisagree: Mesh { names: Vec<String>, dimensions: u64 }
        "the rank table has {dimensions} dimensions, but mesh_dim_names is {names:?}: one name per dimension is needed";
    /// A name given twice.
    AxisRepeated: Axis { name: String }
        "axis {name:?} is named twice";
    /// A word that names no axis.
    AxisUnknown: Axis { name: String, nearest: String, accepted: Vec<String> }
        "unknown axis {name:?}; did you mean {nearest:?}? Axes are {accepted:?}";
    /// A new name that is no identifier.
    AxisNotAnIdentifier: Axis { name: String }
        "axis name {name:?} is no identifier (letters, digits and underscores; 'data' is taken)";
    /// A known axis where only a declared one will do.
    AxisUndeclared: Axis { name: String, axes: Vec<String> }
        "axis {name:?} is not declared here; the axes are {axes:?}";
    /// An expert size that has no axis here.
    OnlyAnOption: Axis { name: String, size: u64 }
        "{name} is {size} here only as an option, not an axis of this mesh; ask expert_mesh() for its groups";
    /// Ulysses asked for as an axis of a sub-mesh.
    UlyssesHasNoAxis: Axis { size: u64 }
        "ulysses is {size} here only as an option, so no part of the mesh has it as an axis; group_of('ulysses') names its ranks";
    /// An axis that was merged into another.
    AxisMerged: Axis { name: String, axis: String, parts: Vec<String> }
        "axis {name:?} is merged into {axis:?} ({parts:?}); split {axis:?} to ask about it";
    /// Ulysses beside some data axes but not all.
    UlyssesBesideData: Axis { named: String, missing: String }
        "'ulysses' overlays all data axes: beside {named:?} name {missing:?} too, or 'data', or neither";
    /// Not every axis once.
    PermuteNames: Axis { given: Vec<String>, axes: Vec<String> }
        "permute needs each of the axes {axes:?} once, not {given:?}";
    /// Merging no axis.
    NothingToMerge: Axis { name: String }
        "flatten needs at least one axis to make {name:?} of";
    /// A merged axis under a name that means something else.
    MergedNameTaken: Axis { name: String, parts: Vec<String> }
        "{parts:?} cannot merge as {name:?}: take a new name (dp and fsdp alone, in that order, may merge as 'dp')";
    /// Sizes that do not make up the axis.
    SplitProduct: Mesh { name: String, size: u64, product: i128 }
        "axis {name:?} has size {size}, but the parts multiply to {product}";
    /// A merged axis split into something else.
    SplitParts: Axis { name: String, parts: Vec<String> }
        "axis {name:?} was merged from {parts:?} and splits into exactly these, in this order";
    /// A question about rows on a mesh of experts.
    ViewOfExperts: Axis { axis: String }
        "this mesh declares {axis:?}: it arranges groups of experts and cuts no rows; ask the mesh it was made from";
    /// A question about rows on a mesh whose data axis is merged.
    ViewOfMerged: Axis { axis: String, parts: Vec<String> }
        "a data axis is merged into {axis:?} ({parts:?}), so rows have no owner here; split {axis:?} first";
    /// Axes that Megatron's order cannot name.
    NoMegatronOrder: Axis { axis: String, size: u64 }
        "axis {axis:?} of size {size} has no place in Megatron's order, which knows tp, cp, ep, dp and pp";
    /// Ranks that are not consecutive.
    NotRowMajor: Mesh { axes: Vec<String> }
        "the ranks of {axes:?} are not consecutive in the order of the axes, so no order string describes them";
    /// Expert groups that would cut across the pipeline.
    ExpertPipelineDiffers: Mesh { pp: u64, own: u64, expert: u64, order: String }
        "with order {order:?} the {pp} stages of a pipeline are {own} ranks apart, but {expert} apart on the expert mesh";

    // Ranks.

    /// A table longer than any job.
    TableTooLong: Mesh { count: u64, limit: u64 }
        "a table of {count} ranks is longer than the {limit} (2**28) that are accepted";
    /// A table of another length than its axes.
    TableLength: Mesh { world_size: u64, found: u64 }
        "the axes have {world_size} places, but the table has {found} ranks";
    /// A rank that is too large.
    RankTooLarge: Rank { rank: i128 }
        "rank {rank} is too large: ranks are below 2**63";
    /// A negative rank in a table.
    RankNegative: Rank { rank: i128 }
        "rank {rank} is negative";
    /// The same rank at two places.
    RankRepeated: Rank { rank: u64, first: u32, second: u32 }
        "rank {rank} is at two positions, {first} and {second}";
    /// A rank that the mesh does not have.
    RankOutside: Rank { rank: i128, world_size: u64, lowest: u64, highest: u64 }
        "rank {rank} is not in this mesh of {world_size} ranks between {lowest} and {highest}";
    /// A position that the mesh does not have.
    PositionOutside: Rank { position: i128, world_size: u64 }
        "position {position} is not in 0..{world_size}";
    /// A data rank that the mesh does not have.
    DataRankOutside: Rank { data_rank: i128, data_world_size: u64 }
        "data rank {data_rank} is not in 0..{data_world_size}; for the number of a process write global_rank={data_rank}";
    /// A pipeline stage that the mesh does not have.
    StageOutside: Rank { stage: i128, stages: u64, declared: String }
        "stage {stage} is not in 0..{stages} ({declared})";
    /// An index that the axis does not have.
    IndexOutside: Rank { axis: String, index: i128, size: u64 }
        "{axis}={index} is not in 0..{size}";
    /// An axis whose index is needed.
    IndexMissing: Axis { axis: String, size: u64 }
        "axis {axis:?} has {size} indices, so its index must be given";

    // Orders of an epoch.

    /// A seed, an epoch or a row count that is none.
    OrderNumber: Plan { what: String, value: i128 }
        "{what} is {value}; it must be at least 0 and below 2**63";
    /// Positions that are not in the order.
    OrderSpan: Plan { start: i128, stop: i128, rows: u64 }
        "positions {start}..{stop} are not within the {rows} rows of the order";

    // Answers that would be too large.

    /// A list that would be too long.
    ListTooLong: Mesh { count: u64, limit: u64 }
        "the answer has {count} ranks one by one, more than the {limit} (2**24) a list may have; ask for an array or a group";
    /// An array that would be too large.
    ArrayTooLarge: Mesh { bytes: i128, limit: u64 }
        "the answer takes {bytes} bytes, more than the {limit} (2**33) an array may take";
    /// A row count that is no row count.
    TotalOutOfRange: Mesh { total: i128 }
        "total_length is {total}; it must be at least 0 and below 2**63";
    /// Bytes that describe no mesh.
    NotAMesh: Mesh { why: String }
        "these bytes are no mesh: {why}";

    // Plans: rows, shards and workers.
    /// A value in a plan that is no whole number.
    PlanNotAnInteger: Plan { what: String, found: String }
        "{what} must be a whole number, not {found}";
    /// A number in a plan outside its bounds.
    PlanOutOfRange: Plan { what: String, found: i128, least: i128, most: i128 }
        "{what} must be from {least} to {most}, not {found}";
    /// A value in a plan that is no list of whole numbers.
    PlanNotNumbers: Plan { what: String, found: String }
        "{what} must be a list, range or one-dimensional array of whole numbers, not {found}";
    /// A word in a plan that is not one of the known ones.
    PlanUnknownWord: Plan { what: String, found: String, accepted: Vec<String> }
        "{what} must be one of {accepted:?}, not {found}";
    /// Rows that do not divide into groups.
    GroupsTorn: Plan { what: String, rows: u64, group: u64 }
        "{what} {rows} is no multiple of group {group}: groups of {group} rows stay together, so hand over whole groups";
    /// A group whose rows an explicit layout takes apart.
    GroupApart: Plan { first: u64, last: u64, group: u64 }
        "rows {first} to {last} are one group of {group} and must sit next to each other in one shard";
    /// Padding without a row to repeat.
    NothingToRepeat: Plan { shards: u32 }
        "0 rows over {shards} data shards: there is no row that padding could repeat";
    /// Shards that would get no row.
    EmptyShards: Plan { counted: String, shards: u32, empty: Vec<u32>, shown: String }
        "{counted} over {shards} data shards: shards {shown} would be empty";
    /// A mini-batch in which a shard has no row.
    EmptyCell: Plan { counted: String, shards: u32, minibatches: u32, shard: u32, minibatch: u32, advice: String }
        "{counted} over {shards} data shards in {minibatches} mini-batches: shard {shard} has no row in mini-batch \
         {minibatch}; {advice}";
    /// A row that sits in two places.
    RowTwice: Plan { row: u64, first: u32, second: u32 }
        "row {row} sits in shard {first} and again in shard {second}: every row sits in exactly one place";
    /// A row number that leaves a hole in the rows below it.
    RowMissing: Plan { row: u64, rows: u64 }
        "row {row} is missing: the {rows} rows of the shards must be 0 up to {rows}, exclusive, each once";
    /// A row that is not there.
    RowBeyond: Plan { what: String, row: i128, rows: u64 }
        "{what} names row {row}, but there are {rows} rows: rows count from 0 up to {rows}, exclusive";
    /// A list with one entry too many or too few.
    PlanCount: Plan { what: String, expected: u64, found: u64 }
        "{what}: {expected} expected, {found} found";
    /// A shard that is not there.
    ShardBeyond: Plan { shard: i128, shards: u32 }
        "there is no shard {shard}: {shards} shards count from 0 up to {shards}, exclusive";
    /// A question about the share of a shard in no rows at all.
    NoLossScale: Plan { shards: u32 }
        "0 rows over {shards} data shards have no loss scale: it divides by the number of rows";
    /// Two layouts that are not about the same rows.
    RowsDiffer: Plan { rows: u64, other: u64 }
        "a layout of {rows} rows and one of {other} rows do not hold the same rows";
    /// Two plans that are not about the same shards.
    ShardsDiffer: Plan { what: String, shards: u32, other: u32 }
        "{what}: {shards} shards on one side, {other} on the other";
    /// A question about mini-batches to a layout without any.
    NoMiniBatches: Plan { rows: u64, shards: u32 }
        "this layout of {rows} rows over {shards} shards has no mini-batches: make one with Layout.minibatched";
    /// Weights or lengths whose sum is too large to count.
    LoadTooLarge: Plan { most: u64 }
        "the weights add up to more than {most}: scale them down";
    /// An answer that would not fit in memory.
    PlanTooLarge: Plan { what: String, items: u64, most: u64 }
        "{what} would have {items} items, and at most {most} are made at once";
    /// Micro-batches that a shard cannot fill.
    BinsShort: Plan { shard: u32, minibatch: u32, rows: u64, bins: u64, advice: String }
        "shard {shard} has {rows} rows in mini-batch {minibatch}, and {bins} micro-batches need one row each: {advice}";
    /// Bytes that are no plan.
    PlanMalformed: Plan { what: String, reason: String }
        "these bytes are no {what}: {reason}";
    /// A worker whose positions belong to different shards.
    WorkerSpansShards: Plan { worker: u32, positions: Vec<u32>, shards: Vec<u32> }
        "worker {worker} owns positions {positions:?} of data shards {shards:?}: its positions must share one data shard; \
         put the innermost axis inside the worker, or name each worker's positions in workers=";
    /// A number of workers that fits neither one position nor one device each.
    WorkersMisfit: Placement { world_size: u64, workers: u64, gpus_per_worker: u64 }
        "a mesh of {world_size} positions does not fit {workers} workers of {gpus_per_worker} devices: it needs one position \
         per worker or one per device, workers or workers * gpus_per_worker";
    /// Positions that cannot be dealt out in blocks.
    DevicesMisfit: Placement { world_size: u64, gpus_per_worker: u64 }
        "a mesh of {world_size} positions cannot be dealt out {gpus_per_worker} to a worker: gpus_per_worker must divide it";
    /// A worker map that names a position twice, or one that is not there.
    WorkerMapPosition: Placement { worker: u32, position: i128, world_size: u64, reason: String }
        "workers[{worker}] names position {position}, which {reason}: the {world_size} positions of the mesh, each once";
    /// A worker map that leaves positions out.
    WorkerMapMissing: Placement { position: u64, world_size: u64 }
        "position {position} belongs to no worker: workers= must name all {world_size} positions of the mesh, each once";
    /// A worker that owns the wrong number of positions.
    WorkerMapSize: Placement { worker: u32, found: u64, expected: u64 }
        "workers[{worker}] names {found} positions, and a worker has {expected}";
    /// A worker that is not there.
    WorkerBeyond: Placement { what: String, worker: i128, workers: u64 }
        "{what} names worker {worker}, but there are {workers} workers: they count from 0 up to {workers}, exclusive";
    /// Axes that deal out no shards.
    PlacementShape: Placement { reason: String }
        "these axes place no shards: {reason}";
}
