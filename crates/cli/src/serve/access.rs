//! Access lists: which clients may use which volumes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use upsweep_nbd::server::{Address, Peer};
use upsweep_volume::VolumeSettings;

/// A setting of a volume, or of all that have none of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) volume: Option<String>,
    pub(crate) value: T,
}

impl<T: FromStr<Err = String>> FromStr for Setting<T> {
    type Err = String;

    /// `VALUE` or `VOLUME=VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        // The name of a volume may have the sign, too.
        let (volume, value) = match text.rsplit_once('=') {
            Some((volume, value)) => (Some(volume.to_owned()), value),
            None => (None, text),
        };
        Ok(Self { volume, value: value.parse()? })
    }
}

/// Settings by volume.
pub(super) struct Settings<T> {
    own: BTreeMap<String, T>,
    others: Option<T>,
}

impl<T: Clone> Settings<T> {
    /// With what was given several times for a volume joined.
    pub(super) fn new(given: &[Setting<T>], join: impl Fn(T, T) -> T) -> Self {
        let mut settings = Self { own: BTreeMap::new(), others: None };
        for Setting { volume, value } in given {
            let place = match volume {
                Some(volume) => settings.own.remove(volume),
                None => settings.others.take(),
            };
            let value = match place {
                Some(before) => join(before, value.clone()),
                None => value.clone(),
            };
            match volume {
                Some(volume) => drop(settings.own.insert(volume.clone(), value)),
                None => settings.others = Some(value),
            }
        }
        settings
    }

    /// That of a volume, if there is one: what was given for it, or else what is kept in the store,
    /// or else what was given for all others.
    pub(super) fn of(&self, volume: &str, kept: Option<T>) -> Option<T> {
        self.own.get(volume).cloned().or(kept).or_else(|| self.others.clone())
    }
}

/// Some clients.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// Those with the same first bits of the address.
    Network(IpAddr, u32),
    /// Those of a user of this machine, on a Unix socket.
    User(u32),
    /// Those with a certificate of this DNS name.
    Name(String),
}

impl FromStr for Who {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is none of an address, a network such as 10.0.0.0/8, uid:NUMBER, and \
                 name:DNS-NAME"
            )
        };
        if let Some(user) = text.strip_prefix("uid:") {
            return user.parse().map(Self::User).map_err(|_| wrong());
        }
        if let Some(name) = text.strip_prefix("name:").filter(|name| !name.is_empty()) {
            return Ok(Self::Name(name.to_owned()));
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).ok().filter(|bits| *bits <= most);
        Ok(Self::Network(address, bits.ok_or_else(wrong)?))
    }
}

impl Who {
    fn is(&self, peer: &Peer) -> bool {
        match (self, peer.address) {
            (Self::Network(network, bits), Address::Tcp(address)) => {
                // A socket for both versions shows addresses of version 4 as ones of version 6.
                match (network, address.ip().to_canonical()) {
                    (IpAddr::V4(network), IpAddr::V4(address)) => {
                        (network.to_bits() ^ address.to_bits()).leading_zeros() >= *bits
                    }
                    (IpAddr::V6(network), IpAddr::V6(address)) => {
                        (network.to_bits() ^ address.to_bits()).leading_zeros() >= *bits
                    }
                    _ => false,
                }
            }
            (Self::User(user), Address::Unix { user: Some(found) }) => *user == found,
            (Self::Name(name), _) => {
                peer.names.iter().any(|found| found.eq_ignore_ascii_case(name))
            }
            _ => false,
        }
    }
}

/// Clients that may use a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clients(Vec<Who>);

impl FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Clients {
    /// Those of the settings of a volume; `None` if there are none. Nobody is meant by what cannot
    /// be read, which another version of the program has written.
    pub(super) fn kept(settings: &VolumeSettings) -> Option<Self> {
        let clients = settings.clients.iter().filter_map(|who| who.parse().ok());
        (!settings.clients.is_empty()).then(|| Self(clients.collect()))
    }

    pub(super) fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    pub(super) fn have(&self, peer: &Peer) -> bool {
        self.0.iter().any(|who| who.is(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: Address, names: &[&str]) -> Peer {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Peer { address, is_encrypted: false, names }
    }

    fn tcp(address: &str) -> Peer {
        peer(Address::Tcp((address.parse::<IpAddr>().expect("an address"), 1).into()), &[])
    }

    fn user(user: Option<u32>) -> Peer {
        peer(Address::Unix { user }, &[])
    }

    #[test]
    fn clients_are_known_by_address_user_or_name() {
        let clients: Clients =
            "10.1.0.0/16,192.168.0.7,fd00::/8,uid:33,name:backup.example".parse().expect("a list");
        let named = |name| peer(Address::Unix { user: None }, &["other.example", name]);
        let address = |text| clients.have(&tcp(text));
        assert!(address("10.1.255.1") && address("::ffff:10.1.2.3") && address("192.168.0.7"));
        assert!(address("fdff::1"));
        assert!(!address("10.2.0.0") && !address("192.168.0.6") && !address("fe00::1"));
        assert!(clients.have(&user(Some(33))) && clients.have(&named("Backup.Example")));
        assert!(!clients.have(&user(Some(0))) && !clients.have(&user(None)));
        assert!(!clients.have(&named("backup.example.org")));
        let all: Clients = "0.0.0.0/0".parse().expect("a list");
        assert!(all.have(&tcp("1.2.3.4")) && !all.have(&tcp("::1")) && !all.have(&user(Some(0))));
    }

    #[test]
    fn what_is_no_client_is_refused() {
        for text in
            ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0/8", "uid:", "uid:x", "name:", "host"]
        {
            let refused = text.parse::<Clients>().expect_err(text);
            assert!(refused.contains("a network such as 10.0.0.0/8"), "{refused}");
        }
    }

    #[test]
    fn a_volume_has_its_own_setting_or_that_of_the_others() {
        let setting = |text: &str| text.parse::<Setting<Clients>>().expect("a setting");
        let given = ["a=b=uid:1", "uid:2", "a=b=uid:3", "disk=uid:4"].map(setting);
        let settings = Settings::new(&given, Clients::and);
        let may = |volume: &str, number| {
            let clients = settings.of(volume, None);
            clients.is_some_and(|clients| clients.have(&user(Some(number))))
        };
        let all = |volume| [1, 2, 3, 4].map(|number| may(volume, number));
        assert_eq!(all("a=b"), [true, false, true, false]);
        assert_eq!(all("disk"), [false, false, false, true]);
        assert_eq!(all("other"), [false, true, false, false]);
        assert!(Settings::new(&given[3..], Clients::and).of("other", None).is_none());
        // What is kept is the volume's own, unless something is given for it.
        let kept: Clients = "uid:9".parse().expect("a list");
        assert_eq!(settings.of("other", Some(kept.clone())), Some(kept.clone()));
        assert_ne!(settings.of("disk", Some(kept.clone())), Some(kept));
    }

    #[test]
    fn clients_that_cannot_be_read_are_nobody() {
        let mut settings = VolumeSettings::default();
        assert_eq!(Clients::kept(&settings), None);
        settings.clients = vec!["uid:1".to_owned(), "group:2".to_owned()];
        let kept = Clients::kept(&settings).expect("some");
        assert_eq!(Some(kept), "uid:1".parse().ok());
        settings.clients.remove(0);
        let kept = Clients::kept(&settings).expect("nobody");
        assert!(!kept.have(&user(Some(1))) && !kept.have(&tcp("127.0.0.1")));
    }
}
