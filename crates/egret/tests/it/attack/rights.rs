//! What users define runs with the rights of its author: views, functions, triggers, casts, policies.
