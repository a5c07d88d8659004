//! The dashboard: files that were built with the binary, and one page for every address it has.
//!
//! It works wherever it is mounted. The page names its files relative to itself, so it is sent with as many `../` as its
//! address is deep; where it stands, it finds out from the address of its script. Not here: data. All of that comes over
//! the API, so whoever reads these files has read nothing.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::door::Refusal;

/// A built file.
struct File {
    path: &'static str,
    bytes: &'static [u8],
    /// The same, compressed, where that was worth it.
    gzip: Option<&'static [u8]>,
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// The addresses of pages. The dashboard shows what belongs there; a test of its own holds the two lists together.
const PAGES: [&str; 13] = [
    "/",
    "/retries",
    "/jobs",
    "/jobs/{id}",
    "/errors",
    "/dead",
    "/executions",
    "/executions/{id}",
    "/queues",
    "/destinations",
    "/policies",
    "/activity",
    "/sign-in",
];

/// Adds the pages and their files.
pub(crate) fn mount<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    let router = router.route("/assets/{*path}", get(asset)).route("/favicon.svg", get(icon));
    PAGES.iter().fold(router, |router, path| router.route(path, get(page)))
}

/// Whether a path leads to a page or one of its files, which everybody may have: there is nothing of anybody's in them.
pub(crate) fn is_public(path: &str) -> bool {
    let is_one = |of: &str| path.strip_prefix(of).is_some_and(|id| !id.contains('/'));
    is_one("/jobs/")
        || is_one("/executions/")
        || path == "/favicon.svg"
        || path.starts_with("/assets/")
        || PAGES.contains(&path)
}

async fn page(request: Request) -> Result<Response, Refusal> {
    let file = find("index.html")?;
    let path = request.uri().path();
    let depth = path.trim_start_matches('/').matches('/').count();
    let html = String::from_utf8_lossy(file.bytes).replace("\"./", &format!("\"{}", "../".repeat(depth)));
    // An empty prefix leaves `assets/…`, which is as relative as `./assets/…`.
    Ok(answer("text/html; charset=utf-8", "no-cache", html.into()))
}

async fn asset(Path(path): Path<String>, headers: HeaderMap) -> Result<Response, Refusal> {
    send(&format!("assets/{path}"), "public, max-age=31536000, immutable", &headers)
}

async fn icon(headers: HeaderMap) -> Result<Response, Refusal> {
    send("favicon.svg", "public, max-age=3600", &headers)
}

fn send(path: &str, cache: &'static str, headers: &HeaderMap) -> Result<Response, Refusal> {
    let file = find(path)?;
    let mut response = match file.gzip.filter(|_| takes_gzip(headers)) {
        None => answer(content_type(path), cache, Body::from(file.bytes)),
        Some(small) => {
            let mut response = answer(content_type(path), cache, Body::from(small));
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
    };
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Ok(response)
}

fn find(path: &str) -> Result<&'static File, Refusal> {
    FILES.iter().find(|file| file.path == path).ok_or_else(|| {
        Refusal::new(404, "RETRY_NOT_FOUND", format!("the dashboard has no file {path}"))
            .hint("load the page again: it may be of another version")
    })
}

fn answer(kind: &'static str, cache: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && parts.all(|part| part.replace(' ', "") != "q=0")
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt as _;

    async fn get_path(path: &str, encoding: &'static str) -> (StatusCode, HeaderMap, Vec<u8>) {
        let request = Request::get(path).header("accept-encoding", encoding).body(Body::empty()).unwrap();
        let response = mount(Router::new()).oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 10 << 20).await.unwrap();
        (head.status, head.headers, body.to_vec())
    }

    /// The script that a page names, as a browser at this address would ask for it.
    async fn script_of(address: &str) -> String {
        let (status, headers, body) = get_path(address, "").await;
        assert_eq!(
            (status.as_u16(), headers["content-type"].to_str().unwrap()),
            (200, "text/html; charset=utf-8")
        );
        let html = String::from_utf8(body).unwrap();
        let source = html.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
        let base = url::Url::parse(&format!("http://here/deep/mount{address}")).unwrap();
        base.join(source).unwrap().path().strip_prefix("/deep/mount").unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_page_finds_its_script_at_every_address_and_under_every_mount() {
        for address in ["/", "/jobs", "/jobs/01a1e333-3f59-7000-aeec-6179f1b6215f", "/dead"] {
            let script = script_of(address).await;
            assert!(script.starts_with("/assets/"), "{address} asks for {script}");
            let (status, headers, bytes) = get_path(&script, "br, gzip;q=0.8").await;
            assert_eq!(status, 200);
            assert_eq!(headers["content-encoding"], "gzip");
            assert!(headers["cache-control"].to_str().unwrap().contains("immutable"));
            let (_, plain_headers, plain) = get_path(&script, "gzip;q=0").await;
            assert!(!plain_headers.contains_key("content-encoding"));
            assert!(plain.len() > bytes.len());
        }
    }

    #[tokio::test]
    async fn the_page_holds_no_script_and_no_style_of_its_own() {
        let (_, _, body) = get_path("/", "").await;
        let html = String::from_utf8(body).unwrap();
        assert!(!html.contains("<style") && !html.contains(" style=") && !html.contains("onload="));
        assert!(html.split("<script").skip(1).all(|script| script.contains("src=")));
    }

    #[tokio::test]
    async fn an_unknown_file_is_not_found() {
        assert_eq!(get_path("/assets/nothing.js", "").await.0, 404);
        assert_eq!(get_path("/assets/../index.html", "").await.0, 404);
    }

    #[test]
    fn pages_are_public_and_the_api_is_not() {
        for path in ["/", "/jobs", "/jobs/17", "/assets/index.js", "/favicon.svg"] {
            assert!(is_public(path), "{path}");
        }
        for path in ["/api/v1/jobs", "/metrics", "/openapi.json", "/jobs/17/retry", "/healthz/x"] {
            assert!(!is_public(path), "{path}");
        }
    }
}
