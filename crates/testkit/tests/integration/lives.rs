//! The lives of clusters: random changes of masters and versions, hosts that die for ever, commands that are killed, and
//! hosts that work in a random order. Nothing may cost the quorum of etcd or break the rules of versions.

use kubeon_plan::{HostSpec, Intent};
use kubeon_testkit::{ClusterBuilder, World, address, cluster, host};

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

/// A cluster in its world.
struct Life {
    world: World,
    random: Random,
    masters: Vec<usize>,
    /// Hosts that were never used.
    spare: Vec<usize>,
    version: usize,
}

/// What a change does: the masters that join and leave, those of them that are lost, and the version afterwards.
#[derive(Debug, Clone, Default)]
struct Change {
    joins: Vec<usize>,
    leaves: Vec<usize>,
    lost: bool,
    version: usize,
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
        };
        create(&life.world, &life.intent(&Change::default())).await.unwrap();
        life
    }

    fn intent(&self, change: &Change) -> Intent {
        self.with_intent(change, |spec| spec.version(VERSIONS[change.version]).intent())
    }

    /// The control plane tries the version of the change.
    fn trial(&self, change: &Change) -> Intent {
        self.with_intent(change, |spec| spec.version(VERSIONS[self.version]).trying(VERSIONS[change.version]))
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
            ..intent(spec.worker(WORKER))
        }
    }

    /// A random change that is possible now.
    fn next(&mut self) -> Change {
        let same = Change { version: self.version, ..Change::default() };
        loop {
            let (masters, spare) = (self.masters.len(), self.spare.len());
            match self.random.below(5) {
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
                    return Change { version: self.version + 1, ..same };
                }
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

    /// Tries the version of the change. Returns whether the upgrade was aborted.
    async fn tried(&mut self, change: &Change) -> Result<bool, String> {
        let trial = self.trial(change);
        self.killed(&trial).await?;
        if self.random.below(4) == 0 {
            let back = self.intent(&Change { version: self.version, ..Change::default() });
            self.killed(&back).await?;
            return create(&self.world, &back).await.map(|_| true);
        }
        create(&self.world, &trial).await.map(|_| false)
    }

    /// Makes the change with killed commands, and says what went wrong. An upgrade may be aborted.
    async fn change(&mut self, change: &Change) -> Result<(), String> {
        if change.version != self.version && self.tried(change).await? {
            return self.settled().await;
        }
        let intent = self.intent(change);
        self.killed(&intent).await?;
        create(&self.world, &intent).await?;
        self.masters.retain(|master| !change.leaves.contains(master));
        self.masters.extend(&change.joins);
        self.spare.retain(|spare| !change.joins.contains(spare));
        self.version = change.version;
        self.settled().await
    }

    /// Nothing is left to do, and nothing was harmed.
    async fn settled(&self) -> Result<(), String> {
        let settled =
            create(&self.world, &self.intent(&Change { version: self.version, ..Change::default() })).await?;
        match (self.world.harms().first(), settled.plan.steps.first()) {
            (Some(harm), _) => Err(format!("harm: {harm}")),
            (None, Some(step)) => Err(format!("{} is left: {}", step.id, step.why)),
            (None, None) => Ok(()),
        }
    }
}

/// Lives that begin with this seed, and what they changed: masters, versions.
async fn lives(seed: u64, changes: usize) -> (usize, usize) {
    let (mut masters, mut versions) = (0, 0);
    for number in 0..changes.div_ceil(CHANGES_PER_LIFE) as u64 {
        let seed = seed.wrapping_add(number);
        let mut life = Life::begin(seed).await;
        for index in 0..CHANGES_PER_LIFE {
            let change = life.next();
            let upgrades = change.version != life.version;
            let done = life.change(&change).await;
            assert_eq!(done, Ok(()), "seed {seed}, change {index}: {change:?} of {:?}", life.masters);
            versions += usize::from(upgrades);
            masters += change.joins.len() + change.leaves.len();
        }
    }
    (masters, versions)
}

#[tokio::test(start_paused = true)]
async fn no_life_costs_the_quorum_or_mixes_versions() {
    let (masters, versions) = lives(1, 160).await;
    assert!(masters > 100 && versions > 20, "{masters} masters joined or left, {versions} upgrades");
}

#[tokio::test(start_paused = true)]
#[ignore = "10,000 changes take minutes: ./test long"]
#[allow(clippy::print_stdout, reason = "prints what it did")]
async fn soak_ten_thousand_changes_cost_no_quorum() {
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    println!("  seed {seed}");
    let (masters, versions) = lives(seed, 10_000).await;
    println!("  {masters} masters joined or left, {versions} upgrades");
}
