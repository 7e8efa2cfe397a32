//! The command that a user types to mount.

use crate::export::ExportSettings;
use std::os::unix::ffi::OsStrExt;

/// The command that mounts `export` from where the server listens, on a Linux client; `None` for a transport that
/// its kernel cannot mount over. `host` stands for this host where the server listens on all addresses; for an
/// export that admits this host only, that is `localhost`.
pub fn mount_command(listen: &str, export: &ExportSettings, host: &str) -> Option<String> {
    let (addr, port) = listen.strip_prefix("tcp://")?.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let addr = addr.trim_start_matches('[').trim_end_matches(']');
    let host = match addr {
        "::" | "0.0.0.0" | "" if export.clients.is_this_host() => "localhost",
        "::" | "0.0.0.0" | "" => host,
        _ => addr,
    };
    // Only an address written in IPv6 needs, and permits, the other transport name.
    let v6 = host.contains(':');
    let (open, close, proto) = if v6 { ("[", "]", "tcp6") } else { ("", "", "tcp") };
    let source =
        [open.as_bytes(), host.as_bytes(), close.as_bytes(), b":", export.path.as_os_str().as_bytes()]
            .concat();
    Some(format!(
        "mount -t nfs -o vers=3,proto={proto},port={port},mountport={port},nolock {} /mnt",
        quote(&source)
    ))
}

/// This host's name; `localhost` if the system does not tell.
pub fn this_hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|s| s.trim().to_owned())
        .ok()
        .filter(|s| !s.is_empty() && s != "(none)")
        .unwrap_or_else(|| "localhost".to_owned())
}

/// A word as a shell reads it back.
fn quote(word: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-:@%+=,[]".contains(b);
    let text = std::str::from_utf8(word).ok().filter(|s| !s.chars().any(char::is_control));
    match text {
        Some(s) if word.iter().all(plain) => s.to_owned(),
        Some(s) => format!("'{}'", s.replace('\'', r"'\''")),
        None => {
            let escaped: String = word
                .iter()
                .map(|b| if plain(b) { char::from(*b).to_string() } else { format!("\\x{b:02x}") })
                .collect();
            format!("$'{escaped}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn cmd(listen: &str, path: &[u8], clients: &str) -> Option<String> {
        let mut e = ExportSettings::new(OsStr::from_bytes(path).into());
        e.clients = clients.parse().unwrap();
        mount_command(listen, &e, "server.example")
    }

    #[test]
    fn the_exact_command() {
        assert_eq!(
            cmd("tcp://[::]:2049", b"/srv/data", "localhost").unwrap(),
            "mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,nolock localhost:/srv/data /mnt"
        );
        assert_eq!(
            cmd("tcp://0.0.0.0:3049", b"/srv", "10.0.0.0/8").unwrap(),
            "mount -t nfs -o vers=3,proto=tcp,port=3049,mountport=3049,nolock server.example:/srv /mnt"
        );
        assert_eq!(
            cmd("tcp://192.0.2.7:2049", b"/srv", "10.0.0.0/8").unwrap(),
            "mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,nolock 192.0.2.7:/srv /mnt"
        );
        assert_eq!(
            cmd("tcp://[::1]:2049", b"/srv", "localhost").unwrap(),
            "mount -t nfs -o vers=3,proto=tcp6,port=2049,mountport=2049,nolock [::1]:/srv /mnt"
        );
        assert_eq!(cmd("udp://[::]:2049", b"/srv", "localhost"), None);
        assert_eq!(cmd("tcp://[::]:x", b"/srv", "localhost"), None);
    }

    #[test]
    fn odd_paths_are_quoted_for_the_shell() {
        let tail = |p: &[u8]| {
            cmd("tcp://[::]:1", p, "localhost").unwrap().split("nolock ").nth(1).unwrap().to_owned()
        };
        assert_eq!(tail(b"/a b/it's"), r"'localhost:/a b/it'\''s' /mnt");
        assert_eq!(tail("/grün".as_bytes()), "'localhost:/grün' /mnt");
        assert_eq!(tail(b"/\xff '\n"), r"$'localhost:/\xff\x20\x27\x0a' /mnt");
    }
}
