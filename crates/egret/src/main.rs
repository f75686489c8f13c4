//! The `egret` program: everything it does is in the library beside it.

/// Requests are many small allocations on several threads, which the system's allocator serves at
/// twice the cost.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    egret::run()
}
