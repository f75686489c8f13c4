//! A hostile branch user, superuser of the branch included: what stays out of reach.
