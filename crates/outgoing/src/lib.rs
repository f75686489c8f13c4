//! Requests that Egret sends to other services, all through one guarded client.
//!
//! A caller that may enqueue tasks or subscribe to documents names an address that Egret then calls
//! from inside of its network. Requests go to public addresses only, unless `outgoing.allow` names
//! others; they follow no redirect there, use no proxy of the environment, and are bounded in time
//! and size.

mod address;
mod client;
mod config;
mod destinations;
mod resolve;
mod slots;

pub use client::{
    Answer, ClientOptions, OutgoingClient, OutgoingError, OutgoingRequest, is_confidential,
};
pub use config::OutgoingConfig;
pub use destinations::Destinations;
pub use reqwest::Url;
pub use resolve::{Lookup, LookupFuture};
pub use slots::{Admission, Delivery, Slots, receiver_of};
