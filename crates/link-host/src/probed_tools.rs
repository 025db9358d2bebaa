//! What a host has for the installation of the node program.

/// What the facts of a host tell about the installation of the node program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbedTools {
    /// The host's architecture, as its kernel names it.
    pub(crate) machine: String,
    /// The programs that the host has and the script that installs the node program may use.
    pub(crate) tools: Vec<String>,
    /// Whether it has a node program of this pool.
    pub(crate) has_program: bool,
}

impl ProbedTools {
    /// Reads the output of the probe.
    pub(crate) fn of(output: &str, has_program: bool) -> Self {
        let value = |key: &str| output.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        let tools = value("install_tools=").split_whitespace().map(str::to_owned).collect();
        Self { machine: value("architecture=").trim().to_owned(), tools, has_program }
    }

    /// Whether the host has this program.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|known| known == tool)
    }
}
