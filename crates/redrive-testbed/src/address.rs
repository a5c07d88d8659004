//! The URL of a server, taken apart so that its address or its database can be exchanged.

/// `postgres://user:password@host:port/database?parameters`, without the database.
#[derive(Clone)]
pub(crate) struct Address {
    /// With the `@`; empty if the URL names no user.
    user: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With the `?`; empty if there are none.
    parameters: String,
}

impl Address {
    /// Reads a URL with one host.
    pub(crate) fn of(url: &str) -> Address {
        Address::read(url).unwrap_or_else(|| {
            panic!(
                "{url:?} is no URL of a PostgreSQL server\nhint: postgres://user:password@host:port/database"
            )
        })
    }

    pub(crate) fn url(&self, database: &str) -> String {
        let Address { user, host, port, parameters } = self;
        format!("postgres://{user}{host}:{port}/{database}{parameters}")
    }

    /// The same server, seen through something on a port of this machine.
    pub(crate) fn behind(&self, port: u16) -> Address {
        Address { host: "127.0.0.1".to_owned(), port, ..self.clone() }
    }

    /// The name alone, if there is one.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.trim_end_matches('@').split(':').next().filter(|name| !name.is_empty())
    }

    fn read(url: &str) -> Option<Address> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
        let (rest, parameters) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let server = rest.split('/').next()?;
        let (user, host) = server.split_at(server.rfind('@').map_or(0, |at| at + 1));
        let (host, port) = host.rsplit_once(':').unwrap_or((host, "5432"));
        let port = port.parse().ok()?;
        Some(Address {
            user: user.to_owned(),
            host: host.to_owned(),
            port,
            parameters: parameters.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_and_the_address_are_exchanged() {
        let address = Address::of("postgresql://me:a@b@example.com:6000/postgres?sslmode=disable");
        assert_eq!(address.url("x"), "postgres://me:a@b@example.com:6000/x?sslmode=disable");
        assert_eq!(address.behind(7000).url("x"), "postgres://me:a@b@127.0.0.1:7000/x?sslmode=disable");
        assert_eq!(address.user(), Some("me"));
    }

    #[test]
    fn a_url_may_say_little() {
        let address = Address::of("postgres://localhost");
        assert_eq!((address.url("x").as_str(), address.user()), ("postgres://localhost:5432/x", None));
    }
}
