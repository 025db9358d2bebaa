//! How containerd reaches registries, from flags.

use std::str::FromStr;

use kubeon_api::kubernetes_cluster::ContainerRuntime;
use kubeon_api::{CaBundle, HttpUrl, NameError, Registry};
use kubeon_plan::Refusal;

use crate::args::settings::SettingFlags;

/// The registry that `--mirror yes` names.
const USUAL_MIRROR: &str = "uhub.service.ucloud.cn";
const DOCKER: &str = "docker.io";

/// The settings in the flags. An invalid value is refused.
pub(super) fn container_runtime(flags: &SettingFlags, refusals: &mut Vec<Refusal>) -> ContainerRuntime {
    let mut runtime = ContainerRuntime {
        http_proxy: parsed("--http-proxy", flags.http_proxy.as_deref(), refusals),
        https_proxy: parsed("--https-proxy", flags.https_proxy.as_deref(), refusals),
        ..ContainerRuntime::default()
    };
    for text in &flags.no_proxy {
        runtime.no_proxy.extend(parsed("--no-proxy", Some(text), refusals));
    }
    for text in mirrors(flags) {
        match mirror(&text) {
            Ok((registry, url)) => runtime.registry_mirrors.entry(registry).or_default().push(url),
            Err(reason) => refusals.push(Refusal::argument(format!("--registry-mirror {text}"), reason)),
        }
    }
    if let Some(path) = &flags.registry_ca {
        match std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| authorities(&text))
        {
            Ok(bundle) => runtime.ca_bundle = Some(bundle),
            Err(reason) => {
                refusals.push(Refusal::argument(format!("--registry-ca {}", path.display()), reason));
            }
        }
    }
    runtime
}

fn authorities(text: &str) -> Result<CaBundle, String> {
    text.parse()
        .map_err(|_: NameError| "holds no certificates as PEM (-----BEGIN CERTIFICATE-----)".to_owned())
}

/// The mirrors of all flags. `--mirror` is a mirror of docker.io: images of the cluster itself come from the bundle.
fn mirrors(flags: &SettingFlags) -> impl Iterator<Item = String> {
    let mirror = flags.mirror.as_deref().map(|mirror| mirror.strip_suffix('/').unwrap_or(mirror));
    let host = match mirror.map(str::to_lowercase).as_deref() {
        None | Some("" | "no" | "false" | DOCKER) => None,
        Some("yes" | "true") => Some(USUAL_MIRROR),
        Some(_) => mirror,
    };
    let usual = host.map(|host| format!("{DOCKER}=https://{host}"));
    usual.into_iter().chain(flags.registry_mirror.clone())
}

fn mirror(text: &str) -> Result<(Registry, HttpUrl), String> {
    let (registry, url) = text.split_once('=').ok_or("is not REGISTRY=URL")?;
    let reason = |error: NameError| error.to_string();
    Ok((registry.parse().map_err(reason)?, url.parse().map_err(reason)?))
}

fn parsed<T: FromStr<Err = NameError>>(
    flag: &str,
    text: Option<&str>,
    refusals: &mut Vec<Refusal>,
) -> Option<T> {
    let text = text?;
    text.parse()
        .map_err(|error: NameError| {
            refusals.push(Refusal::argument(format!("{flag} {text}"), error.to_string()))
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(flags: SettingFlags) -> Result<ContainerRuntime, Vec<String>> {
        let mut refusals = Vec::new();
        let runtime = container_runtime(&flags, &mut refusals);
        if refusals.is_empty() { Ok(runtime) } else { Err(refusals.into_iter().map(|r| r.value).collect()) }
    }

    #[test]
    fn c18_mirror_names_a_mirror_of_docker() {
        for (given, mirror) in [
            ("yes", Some("https://uhub.service.ucloud.cn")),
            ("TRUE", Some("https://uhub.service.ucloud.cn")),
            ("h.example/", Some("https://h.example")),
            ("no", None),
            ("", None),
        ] {
            let flags = SettingFlags { mirror: Some(given.to_owned()), ..SettingFlags::default() };
            let runtime = runtime(flags).unwrap();
            let urls = runtime.registry_mirrors.get(&DOCKER.parse().unwrap());
            assert_eq!(urls.map(|urls| urls[0].as_str()), mirror, "{given}");
        }
        assert!(runtime(SettingFlags::default()).unwrap().is_empty());
    }

    #[test]
    fn all_wrong_values_are_refused_at_once() {
        let flags = SettingFlags {
            registry_mirror: vec!["docker.io".to_owned(), "quay.io=ftp://x".to_owned()],
            http_proxy: Some("http://me:secret@proxy:3128".to_owned()),
            no_proxy: vec!["a b".to_owned()],
            registry_ca: Some("/nonexistent".into()),
            ..SettingFlags::default()
        };
        assert_eq!(runtime(flags).unwrap_err().len(), 5);
    }
}
