//! Lists of lists in two arrays: what every shard, worker or bin holds, without an allocation for each.

/// Many short lists, one after the other; list `i` is `items[bounds[i]..bounds[i + 1]]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Csr<T> {
    bounds: Vec<usize>,
    items: Vec<T>,
}

impl<T> Default for Csr<T> {
    fn default() -> Self {
        Self { bounds: vec![0], items: Vec::new() }
    }
}

impl<T> Csr<T> {
    /// No list yet, with room for `lists` of `items` together.
    pub fn with_capacity(lists: usize, items: usize) -> Self {
        let mut bounds = Vec::with_capacity(lists + 1);
        bounds.push(0);
        Self { bounds, items: Vec::with_capacity(items) }
    }

    /// `lists` empty lists.
    pub fn empty(lists: usize) -> Self {
        Self { bounds: vec![0; lists + 1], items: Vec::new() }
    }

    /// Joins items and the bounds of their lists, which ascend from 0 to the number of items.
    pub(crate) fn of_parts(bounds: Vec<usize>, items: Vec<T>) -> Self {
        Self { bounds, items }
    }

    /// Adds an item to the list that is not closed yet.
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Closes the list that was being filled; the next `push` starts another.
    pub fn close(&mut self) {
        self.bounds.push(self.items.len());
    }

    /// The last item of the list that is not closed yet.
    pub fn open_last(&mut self) -> Option<&mut T> {
        let start = self.bounds[self.bounds.len() - 1];
        self.items[start..].last_mut()
    }

    /// How many lists there are.
    pub fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Whether there is no list at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One list; `index` is below `len`.
    pub fn list(&self, index: usize) -> &[T] {
        &self.items[self.bounds[index]..self.bounds[index + 1]]
    }

    /// All lists in order.
    pub fn lists(&self) -> impl ExactSizeIterator<Item = &[T]> {
        self.bounds.windows(2).map(|pair| &self.items[pair[0]..pair[1]])
    }

    /// The items of all lists, one after the other.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

impl<T> FromIterator<Vec<T>> for Csr<T> {
    fn from_iter<I: IntoIterator<Item = Vec<T>>>(lists: I) -> Self {
        let mut all = Self::default();
        for list in lists {
            all.items.extend(list);
            all.close();
        }
        all
    }
}
