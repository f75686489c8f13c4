//! How much of a file is its own and not shared with a clone, by the FIEMAP ioctl.
//!
//! Layout and numbers: the kernel's `include/uapi/linux/fiemap.h` and
//! `Documentation/filesystems/fiemap.rst`.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// Extents asked for in one call.
const EXTENTS_PER_CALL: usize = 128;
/// `FIEMAP_EXTENT_LAST`: the last extent of the file.
const EXTENT_LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_SHARED`: the extent is shared with other files.
const EXTENT_SHARED: u32 = 0x2000;
/// `FIEMAP_FLAG_SYNC`: write what is delayed first, so that it has extents to count.
const FLAG_SYNC: u32 = 0x1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Request {
    header: Header,
    extents: [Extent; EXTENTS_PER_CALL],
}

const _: () = assert!(size_of::<Header>() == 32 && size_of::<Extent>() == 56);
const _: () = assert!(size_of::<Request>() == 32 + 56 * EXTENTS_PER_CALL);

/// `FS_IOC_FIEMAP`, `_IOWR('f', 11, struct fiemap)`: the number carries the header's size alone.
struct Fiemap<'a>(&'a mut Request);

#[expect(unsafe_code, reason = "an ioctl is described to rustix by implementing its unsafe trait")]
// SAFETY: the kernel reads the header and writes it back together with at most `extent_count`
// extents behind it; `Request` has room for exactly that many (set below, sizes asserted above) and
// is borrowed mutably through the call. Every bit pattern is a valid value of its fields.
unsafe impl Ioctl for Fiemap<'_> {
    type Output = ();

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Header>(b'f', 11)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut::<Request>(self.0).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// A range of a file and where it is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Its first byte on the device.
    pub physical: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Whether another file has it too.
    pub is_shared: bool,
}

/// Bytes of the file's extents that no other file shares.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` where the file system has no FIEMAP.
pub fn unshared_bytes(file: &File) -> io::Result<u64> {
    let mut total = 0;
    visit_extents(file, &mut |extent| {
        if !extent.is_shared {
            total += extent.length;
        }
    })?;
    Ok(total)
}

/// Calls `visit` for each extent of the file in its order.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` where the file system has no FIEMAP.
pub fn visit_extents(file: &File, visit: &mut dyn FnMut(FileExtent)) -> io::Result<()> {
    let mut request = Box::new(Request {
        header: Header::default(),
        extents: [Extent::default(); EXTENTS_PER_CALL],
    });
    let mut start = 0;
    loop {
        request.header = Header {
            start,
            length: u64::MAX - start,
            flags: FLAG_SYNC,
            extent_count: EXTENTS_PER_CALL as u32,
            ..Header::default()
        };
        #[expect(unsafe_code, reason = "calling an ioctl is unsafe in rustix")]
        // SAFETY: `Fiemap` describes its ioctl truthfully and `file` stays open through the call.
        unsafe {
            ioctl(file.as_fd(), Fiemap(&mut request))?;
        }
        let mapped =
            &request.extents[..(request.header.mapped_extents as usize).min(EXTENTS_PER_CALL)];
        for extent in mapped {
            visit(FileExtent {
                physical: extent.physical,
                length: extent.length,
                is_shared: extent.flags & EXTENT_SHARED != 0,
            });
            start = extent.logical + extent.length;
        }
        if mapped.last().is_none_or(|extent| extent.flags & EXTENT_LAST != 0) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
