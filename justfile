# List what there is.
default:
    @just --list

# Everything.
test:
    ./test

# Without the clusters in the lab.
fast:
    ./test fast

fmt:
    cargo fmt --all

clippy:
    cargo clippy --workspace --all-targets -- -D warnings

check:
    cargo xtask check

gen:
    cargo xtask gen

# Write the golden stories of the planner again: read the diff.
golden:
    UPDATE_GOLDEN=1 cargo test -p kubeon-plan --test integration

bench-create:
    cargo xtask bench create

bench-upgrade:
    cargo xtask bench upgrade

bench-scale:
    cargo xtask bench scale

bench-masters:
    cargo xtask bench masters
