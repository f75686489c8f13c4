//! Numbers compressed by the crate `pco`, without the framing that it has for files: its format
//! version, what it knows of the numbers, the numbers.

use egret_base::codec::{DecodeError, Reader};
use pco::ChunkConfig;
use pco::data_types::Number;
use pco::wrapped::{FileCompressor, FileDecompressor};

/// The numbers, compressed; there is at least one.
pub(super) fn compress<N: Number>(numbers: &[N], config: &ChunkConfig) -> Vec<u8> {
    let file = FileCompressor::default();
    let write = || {
        let mut chunk = file.chunk_compressor(numbers, config)?;
        let out = file.write_header(Vec::new())?;
        let out = chunk.write_meta(out)?;
        chunk.write_page(0, out)
    };
    write().expect("the configuration is right and memory takes any bytes")
}

/// Fills `numbers`.
///
/// # Errors
/// [`DecodeError`] for anything that is not so many numbers.
pub(super) fn decompress<N: Number>(
    reader: &mut Reader<'_>,
    numbers: &mut [N],
) -> Result<(), DecodeError> {
    let malformed = reader.malformed();
    let mut read = |bytes| {
        let (file, rest) = FileDecompressor::new(bytes)?;
        let (mut chunk, rest) = file.chunk_decompressor::<N, _>(rest)?;
        let mut page = chunk.page_decompressor(rest, numbers.len())?;
        let progress = page.read(numbers)?;
        Ok::<_, pco::errors::PcoError>((progress.n_processed == numbers.len(), page.into_src()))
    };
    let bytes = reader.rest();
    let (is_whole, rest) = read(bytes).map_err(|_| malformed)?;
    reader.take(bytes.len() - rest.len())?;
    if is_whole { Ok(()) } else { Err(malformed) }
}
