//! Certificates out of PEM files.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// All certificates of a file, of which there is at least one; else what is wrong with it.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let hint = "write the path of a PEM file";
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match found {
        Ok(found) if found.is_empty() => {
            Err(format!("there is no certificate in {}; {hint}", path.display()))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(format!("no certificate can be read from {} ({error}); {hint}", path.display())),
    }
}

/// Those who may vouch for others, according to a file.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("a certificate in {} cannot be read: {error}", path.display()))?;
    }
    Ok(roots)
}
