//! What views that are kept fresh are known to get wrong, each shown not to happen here.

mod collisions;
mod crashed;
mod floats;
mod groups;
mod joins;
mod readers;
mod restored;
mod rows;
mod segments;
mod snapshots;
mod values;
mod work;
mod writers;
