//! The context of a command: the environment and the output.

use std::path::Path;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_engine::engine::Engine;
use kubeon_engine::environment::{EngineEnvironment, LabAccess};
use kubeon_lab::{Lab, Places, User};

use crate::args::{CliEnvironment, Typed};
use crate::cli_error::CliError;
use crate::output::CliOutput;

/// The context of a command.
pub(crate) struct Context<'a> {
    /// The environment.
    pub environment: CliEnvironment,
    /// The output for messages and results.
    pub output: &'a CliOutput,
}

impl Context<'_> {
    /// The engine with the state of this machine.
    ///
    /// # Errors
    /// Refuses when the environment names no state folder.
    pub(crate) fn engine(&self) -> Result<Engine<'_>, CliError> {
        Ok(Engine::new(self.engine_environment(), self.output)?)
    }

    /// The environment of the engine.
    pub(crate) fn engine_environment(&self) -> EngineEnvironment {
        let environment = &self.environment;
        EngineEnvironment {
            state_folder: environment.state_folder(),
            home: environment.home.clone(),
            user: environment.user.clone(),
            cache: environment.cache.clone(),
            bundles: environment.bundles.clone(),
            path: environment.path.clone(),
            node_program: environment.node_program.clone(),
            program: environment.program.clone(),
            pinned_in: environment.pinned_in.clone(),
            ssh_agent: environment.ssh_agent.clone(),
            trusted_keys: environment.trusted_keys.clone(),
            leaf_minutes: environment.leaf_minutes,
            s3: environment.s3.clone(),
            cloud_account: environment.cloud_account.clone(),
            labs: self.labs(),
        }
    }

    /// The folders of labs.
    ///
    /// # Errors
    /// When the environment names no folder.
    pub(crate) fn lab_places(&self) -> Result<Places, CliError> {
        let (state, cache) = (self.environment.state_folder(), self.environment.cache.clone());
        let (Some(state), Some(cache)) = (state, cache) else {
            return Err(CliError::refused("HOME is not set: set KUBEON_HOME and KUBEON_CACHE to folders"));
        };
        Ok(Places::new(&state, &cache))
    }

    /// How to log in to the labs of this machine. Labs that cannot be read are skipped: other logins may open
    /// their hosts.
    fn labs(&self) -> Vec<LabAccess> {
        let Ok(places) = self.lab_places() else { return Vec::new() };
        let names = Lab::list(&places).unwrap_or_default();
        let access = |lab: Lab| {
            lab.ssh_command("h1", User::Root).ok()?;
            let known_hosts = lab.known_hosts().ok()?;
            let host = |line: &str| line.split(' ').next()?.parse::<HostAddress>().ok();
            let hosts = known_hosts.lines().filter_map(host).collect();
            Some(LabAccess { hosts, key: lab.key_path(), known_hosts })
        };
        names.iter().filter_map(|name| access(Lab::open(&places, name).ok()?)).collect()
    }

    /// A path for display: `~` replaces the home folder.
    pub(crate) fn shorten(&self, path: &Path) -> String {
        let inside = self.environment.home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        inside.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()))
    }

    /// The typed command line with `typed_command` replaced by `command`, which takes the same arguments.
    /// `None` if another command was typed.
    pub(crate) fn typed_as(&self, typed_command: &str, command: &str) -> Option<String> {
        let typed = Typed::read_any(&self.environment.words)?;
        (typed.command() == typed_command).then(|| typed.line(command))
    }

    /// The command that continues with a cluster, with the typed flags that the state does not remember.
    pub(crate) fn continue_command(&self, command: &str, cluster: &ClusterName) -> String {
        let typed = Typed::read(&self.environment.words);
        let line = typed.map(|typed| typed.continue_line(command, cluster.as_str()));
        line.unwrap_or_else(|| format!("kubeon {command} {cluster}"))
    }
}
