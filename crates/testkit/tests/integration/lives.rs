//! The lives of clusters: random changes of masters and versions, of nodes that go back alone and come forward, hosts that die for
//! ever or for a while, also in the middle of a command that goes on, commands that are killed, and hosts that work in a random order.
//! Nothing may cost the quorum of etcd or break the rules of versions, and no version is taken without a master.

use kubeon_plan::{HostSpec, Intent};
use kubeon_reconcile::Reconciled;
use kubeon_testkit::{ClusterBuilder, World, address, cluster, host, with_nodes_at};

use crate::support::create;

const MASTERS: usize = 12;
const WORKER: &str = "172.30.0.99";
const VERSIONS: [&str; 4] = ["v1.35.7", "v1.36.3", "v1.37.2", "v1.38.1"];
const CHANGES_PER_LIFE: usize = 8;
/// About the effects of one change, after which a command may be killed.
const EFFECTS: usize = 160;

/// Random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}

fn at(index: usize) -> String {
    format!("172.30.0.{}", 11 + index)
}

fn spec(index: &usize) -> HostSpec {
    HostSpec { name: format!("h{}", 11 + index).parse().ok(), ..HostSpec::at(address(&at(*index))) }
}

/// What happened in lives.
#[derive(Debug, Clone, Copy, Default)]
struct LifeCounts {
    changes: usize,
    /// Masters that joined or left.
    masters: usize,
    /// Masters that another one replaced.
    replacements: usize,
    /// Versions that a cluster took.
    upgrades: usize,
    /// Upgrades that were aborted.
    aborts: usize,
    /// Changes of the nodes alone to an older version.
    nodes_back: usize,
    /// Changes of the nodes alone to a newer version, up to that of their control plane.
    nodes_forward: usize,
    /// Masters that lost power during an upgrade and came back.
    cuts: usize,
    /// Masters that lost power while the command went on.
    outlived: usize,
    /// Masters that lost power for ever.
    deaths: usize,
}

/// Runs a command to its end, and once more if a part of it waited for a member that it removed or added.
async fn complete(world: &World, intent: &Intent) -> Result<Reconciled, String> {
    let done = create(world, intent).await?;
    if done.plan.waiting.is_empty() || (intent.leaving.is_empty() && intent.joining_masters.is_empty()) {
        return Ok(done);
    }
    create(world, intent).await
}

/// Whether every master has the version of the command: the engine takes no version before. Only masters lose power here.
fn is_taken(done: &Reconciled) -> bool {
    done.plan.unreachable.is_empty() && done.plan.waiting.is_empty()
}

/// A cluster in its world.
struct Life {
    world: World,
    random: Random,
    masters: Vec<usize>,
    /// Hosts that were never used.
    spare: Vec<usize>,
    version: usize,
    /// The version of the nodes, which may be older.
    nodes: usize,
    counts: LifeCounts,
}

/// What a change does: the masters that join and leave, those of them that are lost, and the versions afterwards.
#[derive(Debug, Clone, Default)]
struct Change {
    joins: Vec<usize>,
    leaves: Vec<usize>,
    lost: bool,
    version: usize,
    nodes: usize,
}

impl Life {
    async fn begin(seed: u64) -> Self {
        let hosts: Vec<String> = (0..MASTERS).map(at).chain([WORKER.to_owned()]).collect();
        let world = World::of(hosts.iter().map(|at| host(at).bare()));
        world.shuffle(seed);
        let mut random = Random(seed);
        let count = 1 + random.below(3);
        let life = Self {
            world,
            random,
            masters: (0..count).collect(),
            spare: (count..MASTERS).collect(),
            version: 0,
            nodes: 0,
            counts: LifeCounts::default(),
        };
        create(&life.world, &life.intent(&Change::default())).await.unwrap();
        life
    }

    fn intent(&self, change: &Change) -> Intent {
        self.with_intent(change, |spec| {
            let intent = spec.version(VERSIONS[change.version]).intent();
            if change.nodes < change.version { with_nodes_at(intent, VERSIONS[change.nodes]) } else { intent }
        })
    }

    /// The control plane tries the version of the change. The nodes keep theirs.
    fn trial(&self, change: &Change) -> Intent {
        self.with_intent(change, |spec| {
            let intent = spec.version(VERSIONS[self.version]).trying(VERSIONS[change.version]);
            if self.nodes < self.version { with_nodes_at(intent, VERSIONS[self.nodes]) } else { intent }
        })
    }

    /// A change that changes nothing.
    fn same(&self) -> Change {
        Change { version: self.version, nodes: self.nodes, ..Change::default() }
    }

    fn with_intent(&self, change: &Change, intent: impl FnOnce(ClusterBuilder) -> Intent) -> Intent {
        let stays = |master: &&usize| !change.leaves.contains(master);
        let masters = self.masters.iter().filter(stays).chain(&change.joins);
        let spec = masters.fold(cluster(), |spec, index| spec.master(&at(*index)));
        let addresses = |hosts: &[usize]| hosts.iter().map(|index| address(&at(*index))).collect();
        Intent {
            joining_masters: addresses(&change.joins),
            leaving_masters: addresses(&change.leaves),
            leaving: change.leaves.iter().map(self::spec).collect(),
            lost_hosts: if change.lost { addresses(&change.leaves) } else { [].into() },
            ..intent(spec.worker(WORKER).with(|spec| {
                // The state stores the names after the first command.
                for host in spec.masters.iter_mut().chain(&mut spec.workers) {
                    host.name = format!("h{}", host.address.ip().octets()[3]).parse().ok();
                }
            }))
        }
    }

    /// A random change that is possible now.
    fn next(&mut self) -> Change {
        let same = self.same();
        loop {
            let (masters, spare) = (self.masters.len(), self.spare.len());
            match self.random.below(6) {
                0 if masters < 4 && spare > 1 => {
                    let joins = self.spare[..1 + self.random.below(2)].to_vec();
                    return Change { joins, ..same };
                }
                1 if masters > 1 => return Change { leaves: vec![self.one()], ..same },
                2 if masters > 1 && spare > 0 => {
                    return Change { joins: vec![self.spare[0]], leaves: vec![self.one()], ..same };
                }
                3 if masters > 2 && spare > 0 => {
                    let lost = self.one();
                    self.world.cut(&at(lost));
                    return Change { joins: vec![self.spare[0]], leaves: vec![lost], lost: true, ..same };
                }
                // With two members, the restart of one always costs the quorum.
                4 if masters != 2 && self.version + 1 < VERSIONS.len() => {
                    return Change { version: self.version + 1, nodes: self.version + 1, ..same };
                }
                5 if self.nodes < self.version && self.random.below(2) == 0 => {
                    return Change { nodes: self.version, ..same };
                }
                // Versions of which no more than three follow work together.
                5 if self.version > 0 => return Change { nodes: self.random.below(self.version), ..same },
                _ if spare < 2 && self.version + 1 == VERSIONS.len() && masters == 1 => return same,
                _ => {}
            }
        }
    }

    fn one(&mut self) -> usize {
        self.masters[self.random.below(self.masters.len())]
    }

    /// Runs commands that are killed, up to two.
    async fn killed(&mut self, intent: &Intent) -> Result<(), String> {
        for _ in 0..self.random.below(3) {
            self.world.die_after(1 + self.random.below(EFFECTS));
            tokio::select! {
                biased;
                () = self.world.died() => {}
                done = create(&self.world, intent) => { done?; }
            }
            self.world.restart();
        }
        Ok(())
    }

    /// A command is killed at a random effect, and at the same moment a master loses power. Returns the master.
    async fn lose_command_and_master(&mut self, begun: &Intent) -> Result<usize, String> {
        self.world.die_after(1 + self.random.below(EFFECTS));
        tokio::select! {
            biased;
            () = self.world.died() => {}
            done = create(&self.world, begun) => { done?; }
        }
        // The command ends in the middle of a restart on one host at most: power is lost there, so that one master is away.
        let interrupted = self.world.interrupted();
        let stopped = self.masters.iter().find(|index| interrupted.contains(&address(&at(**index)))).copied();
        let lost = match stopped {
            Some(index) => index,
            None => self.one(),
        };
        self.world.cut(&at(lost));
        self.world.restart();
        Ok(lost)
    }

    /// A master loses power at a random effect of a command that goes on. Returns the master.
    async fn lose_master(&mut self, begun: &Intent) -> Result<usize, String> {
        let lost = self.one();
        self.world.cut_after(1 + self.random.below(EFFECTS), &at(lost));
        let done = create(&self.world, begun).await;
        if self.world.has_power(&at(lost)) {
            done?;
            self.world.cut(&at(lost));
            return Ok(lost);
        }
        self.counts.outlived += 1;
        Ok(lost)
    }

    /// A master loses power for ever or for a while, and with it the command at a random effect, or the command goes on. The next
    /// command does what it can, and the version is not taken. Then the master comes back, or another one replaces it.
    async fn lose_one(
        &mut self,
        change: &Change,
        intent: fn(&Self, &Change) -> Intent,
    ) -> Result<(), String> {
        let begun = intent(self, change);
        let lost = match self.random.below(2) {
            0 => self.lose_command_and_master(&begun).await?,
            _ => self.lose_master(&begun).await?,
        };
        let done = complete(&self.world, &begun).await?;
        if is_taken(&done) {
            return Err(format!("the version is taken without {}", at(lost)));
        }
        if self.spare.is_empty() || self.random.below(2) == 0 {
            self.world.heal(&at(lost));
            self.counts.cuts += 1;
            return Ok(());
        }
        let new = self.spare[0];
        let (version, nodes) = (change.version, change.nodes);
        let replaced = Change { joins: vec![new], leaves: vec![lost], lost: true, version, nodes };
        let replacing = intent(self, &replaced);
        self.killed(&replacing).await?;
        complete(&self.world, &replacing).await?;
        self.take_hosts(&replaced);
        self.counts.deaths += 1;
        Ok(())
    }

    /// The masters after a change.
    fn take_hosts(&mut self, change: &Change) {
        self.masters.retain(|master| !change.leaves.contains(master));
        self.masters.extend(&change.joins);
        self.spare.retain(|spare| !change.joins.contains(spare));
        self.counts.masters += change.joins.len() + change.leaves.len();
        self.counts.replacements += change.joins.len().min(change.leaves.len());
    }

    /// Changes the version: it is tried, and then it is aborted or taken. A master may lose power before and after.
    async fn upgrade(&mut self, change: &Change) -> Result<(), String> {
        // With fewer masters, the loss of one costs the quorum.
        let loses = if self.masters.len() > 2 { self.random.below(4) } else { 3 };
        let tried = self.trial(change);
        self.killed(&tried).await?;
        if loses == 0 {
            self.lose_one(change, Self::trial).await?;
        }
        if self.random.below(4) == 0 {
            let back = self.intent(&self.same());
            self.killed(&back).await?;
            create(&self.world, &back).await?;
            self.counts.aborts += 1;
            return Ok(());
        }
        let tried = create(&self.world, &self.trial(change)).await?;
        if !is_taken(&tried) {
            return Err(format!("all masters answer, and something waits: {:?}", tried.plan.waiting));
        }
        let taken = self.intent(change);
        self.killed(&taken).await?;
        if loses == 1 {
            self.lose_one(change, Self::intent).await?;
        }
        let done = create(&self.world, &self.intent(change)).await?;
        if !is_taken(&done) {
            return Err(format!("all masters answer, and something waits: {:?}", done.plan.waiting));
        }
        (self.version, self.nodes) = (change.version, change.nodes);
        self.counts.upgrades += 1;
        Ok(())
    }

    /// Makes the change with killed commands, and says what went wrong.
    async fn change(&mut self, change: &Change) -> Result<(), String> {
        self.counts.changes += 1;
        if change.version != self.version {
            self.upgrade(change).await?;
            return self.settled().await;
        }
        let intent = self.intent(change);
        self.killed(&intent).await?;
        complete(&self.world, &intent).await?;
        self.take_hosts(change);
        self.counts.deaths += usize::from(change.lost);
        self.counts.nodes_back += usize::from(change.nodes < self.nodes);
        self.counts.nodes_forward += usize::from(change.nodes > self.nodes);
        self.nodes = change.nodes;
        self.settled().await
    }

    /// Nothing is left to do, and nothing was harmed.
    async fn settled(&self) -> Result<(), String> {
        let settled = create(&self.world, &self.intent(&self.same())).await?;
        match (self.world.harms().first(), settled.plan.steps.first()) {
            (Some(harm), _) => Err(format!("harm: {harm}")),
            (None, Some(step)) => Err(format!("{} is left: {}", step.id, step.why)),
            (None, None) => Ok(()),
        }
    }
}

/// Lives that begin with this seed, until `enough` says that they did enough.
async fn lives(seed: u64, enough: impl Fn(&LifeCounts) -> bool) -> LifeCounts {
    let mut all = LifeCounts::default();
    let mut number = 0;
    while !enough(&all) {
        let seed = seed.wrapping_add(number);
        number += 1;
        let mut life = Life::begin(seed).await;
        life.counts = all;
        for index in 0..CHANGES_PER_LIFE {
            let change = life.next();
            let done = life.change(&change).await;
            assert_eq!(done, Ok(()), "seed {seed}, change {index}: {change:?} of {:?}", life.masters);
        }
        all = life.counts;
    }
    all
}

#[tokio::test(start_paused = true)]
async fn no_life_costs_the_quorum_or_mixes_versions() {
    let all = lives(1, |counts| counts.changes >= 288).await;
    assert!(all.masters > 100 && all.replacements > 20 && all.upgrades > 20, "{all:?}");
    assert!(all.nodes_back > 0 && all.nodes_forward > 0, "{all:?}");
    assert!(all.cuts > 0 && all.outlived > 0 && all.deaths > 0 && all.aborts > 0, "{all:?}");
}

/// Lives in which the long test found a defect: a control plane restarted beside a stopped program of another one, and a worker's
/// kubelet did not wait for the last control plane.
#[tokio::test(start_paused = true)]
async fn lives_that_had_a_defect_have_none() {
    for seed in [1_795_994_269, 1_795_999_664] {
        lives(seed, |counts| counts.changes >= CHANGES_PER_LIFE).await;
    }
}

/// How many replacements of a master and upgrades the long test makes.
const SOAK: usize = 10_000;

#[tokio::test(start_paused = true)]
#[ignore = "10,000 replacements and upgrades take minutes: ./test long"]
#[allow(clippy::print_stdout, reason = "prints what it did")]
async fn soak_ten_thousand_changes_cost_no_quorum() {
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    println!("  seed {seed}");
    let all = lives(seed, |counts| counts.replacements + counts.upgrades >= SOAK).await;
    println!(
        "  {} replacements of a master and {} upgrades in {} changes; {} masters joined or left, {} upgrades were aborted; during \
         upgrades {} masters lost power for a while, {} while the command went on, {} in all for ever; nodes went back alone {} times \
         and came forward {} times",
        all.replacements,
        all.upgrades,
        all.changes,
        all.masters,
        all.aborts,
        all.cuts,
        all.outlived,
        all.deaths,
        all.nodes_back,
        all.nodes_forward
    );
}
