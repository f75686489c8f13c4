//! Reads files of the settings that decide on authentication.

use std::io::Read;
use std::path::Path;

use crate::error::ServerError;

/// Reads a file that only root and Egret's user can change.
///
/// # Errors
/// [`ServerError::SettingFile`]: the file cannot be read, is too long, or others could change it.
pub(crate) fn read(
    setting: &'static str,
    path: &Path,
    bytes_max: u64,
) -> Result<Vec<u8>, ServerError> {
    let file_error =
        |message: String| ServerError::SettingFile { setting, path: path.to_owned(), message };
    let file = egret_linux::trust::open(path).map_err(|error| file_error(error.to_string()))?;
    let mut bytes = Vec::new();
    let result = file.take(bytes_max + 1).read_to_end(&mut bytes);
    result.map_err(|error| file_error(error.to_string()))?;
    if bytes.len() as u64 > bytes_max {
        return Err(file_error(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}
