//! A replacement for `kubeon-node apply` that implements the protocol and changes nothing. The name of a step decides
//! how it ends.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use std::io::{BufRead, Read, Write};
use std::time::Duration;

use kubeon_wire::{Category, Event, HostStep, Op, Request, StepFailure};
use sha2::{Digest, Sha256};

fn emit(event: &Event) {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, event).unwrap();
    out.write_all(b"\n").unwrap();
    out.flush().unwrap();
}

fn failed(category: Category, cause: &str) -> StepFailure {
    StepFailure { category, cause: cause.into(), log: vec!["last line".into()] }
}

/// Serves the file to everyone who sends a line. Records each in a file next to it.
fn serve_program(address: &str, file: &str) {
    let packed = std::fs::read(file).unwrap();
    std::fs::remove_file(file).unwrap();
    let listener = std::net::TcpListener::bind((address, 0)).unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let record = std::path::Path::new(file).with_file_name("served");
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            std::io::BufReader::new(&client).read_line(&mut line).unwrap();
            if line == "program\n" {
                client.write_all(&packed).unwrap();
                let mut record = std::fs::File::options().create(true).append(true).open(&record).unwrap();
                writeln!(record, "served").unwrap();
            }
        }
    });
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, command, address, file] = arguments.as_slice()
        && command == "serve-program"
    {
        return serve_program(address, file);
    }
    let mut input = std::io::BufReader::with_capacity(1 << 20, std::io::stdin());
    let mut workers = Vec::new();
    let mut line = String::new();
    while input.read_line(&mut line).unwrap() > 0 {
        match serde_json::from_str(&line).unwrap() {
            Request::Open(fence) if fence.generation == 0 => {
                emit(&Event::Refused { failure: failed(Category::Fenced, "generation 7 is newer") });
                return;
            }
            Request::Open(_) => emit(&Event::Opened { program: "fake".into() }),
            Request::Ping => {}
            Request::ForwardParts(_) => {
                emit(&Event::NotForwarding { cause: "a fake forwards nothing".into() })
            }
            Request::Run(step) => match &step.op {
                Op::Part { digest, size, .. } => part(&mut input, &step.id, digest.as_str(), *size),
                _ => workers.push(std::thread::spawn(move || run(&step))),
            },
        }
        line.clear();
    }
    for worker in workers {
        worker.join().unwrap();
    }
}

fn part(input: &mut impl Read, id: &str, digest: &str, size: u64) {
    emit(&Event::Started { id: id.into() });
    let mut sum = Sha256::new();
    let (mut left, mut buffer) = (size, vec![0; 1 << 20]);
    while left > 0 {
        let wanted = usize::try_from(left).unwrap().min(buffer.len());
        let read = input.read(&mut buffer[..wanted]).unwrap();
        assert!(read > 0, "the part was cut off");
        sum.update(&buffer[..read]);
        left -= u64::try_from(read).unwrap();
    }
    let found: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found == digest {
        emit(&Event::Done { id: id.into(), changed: true, milliseconds: 1 });
    } else {
        emit(&Event::Failed { id: id.into(), failure: failed(Category::Corrupt, "another digest") });
    }
}

fn run(step: &HostStep) {
    let id = step.id.clone();
    emit(&Event::Started { id: id.clone() });
    match id.split('-').next().unwrap() {
        "fail" => return emit(&Event::Failed { id, failure: failed(Category::Exhausted, "no space left") }),
        "slow" => std::thread::sleep(Duration::from_millis(300)),
        "hang" => std::thread::sleep(Duration::from_secs(600)),
        "die" => {
            eprintln!("a bug: index out of bounds");
            std::process::exit(101);
        }
        "note" => emit(&Event::Note { id: id.clone(), text: "adapted".into() }),
        "noise" => println!("this is not an event"),
        _ => {}
    }
    emit(&Event::Done { id, changed: step.journal, milliseconds: 7 });
}
