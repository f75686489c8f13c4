//! Requests that Egret sends: where to, and what is shown of them.
