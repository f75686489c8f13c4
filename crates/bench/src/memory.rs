//! Memory that is there before load begins: threads that come to a page of it for the first time,
//! all in the same moment, would be a stall of the load.

/// An empty list of this capacity whose pages are mapped: the kernel maps a page when it is first
/// written.
pub(crate) fn prefaulted_vec<T: Clone + Default>(capacity: usize) -> Vec<T> {
    let mut list = vec![T::default(); capacity];
    list.clear();
    list
}
