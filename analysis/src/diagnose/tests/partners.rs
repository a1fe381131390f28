//! Waiting between pairs of ranks, and the rank at which a chain of waiting ranks begins.

use plimsoll_collector::profile::{ExemplaryMessage, PartnerValue, UNKNOWN_PARTNER};

use super::*;
use crate::canonical::find;
use crate::input::RankInput;
use crate::summary::Pattern;
use crate::synthetic_run::{Doing, calling};

/// Returns the context of a call, by the names of its frames.
fn node_of(input: &RankInput, names: &str) -> Option<u32> {
    let tree = &input.profile.tree;
    let shown = |node: u32| -> String {
        let steps = crate::canonical::path(tree, node);
        steps.iter().map(|(frame, _)| frame.function.as_str()).collect::<Vec<_>>().join("/")
    };
    let found = (0..tree.nodes.len() as u32).find(|node| shown(*node) == names)?;
    assert_eq!(find(tree, &crate::canonical::path(tree, found)), Some(found));
    Some(found)
}

/// A pipeline of four ranks: each rank receives from its predecessor, after that has worked, and
/// sends to its successor. Rank 0 works in `head`, the others in `block`.
fn pipeline() -> Vec<RankInput> {
    let block = |rank| if rank == 0 { "main/sweep/head" } else { "main/sweep/block" };
    pipeline_of(|rank| vec![doing(block(rank), 50 * MS)], |_| Vec::new())
}

/// A pipeline in which each rank does `block` once its predecessor has done so, and all ranks do
/// `first` before.
fn pipeline_of(
    block: impl Fn(u32) -> Vec<Doing>,
    first: impl Fn(u32) -> Vec<Doing>,
) -> Vec<RankInput> {
    pipeline_in(RECEIVE, (50 * MS, 0), 10, block, first)
}

/// The call in which the ranks of a pipeline wait: in the function of its stage, or in that of the
/// whole program.
const RECEIVE: &str = "main/sweep/MPI_Recv";
const RECEIVE_IN_MAIN: &str = "main/MPI_Recv";

fn receive_of(input: &RankInput) -> Option<u32> {
    node_of(input, RECEIVE).or_else(|| node_of(input, RECEIVE_IN_MAIN))
}

/// A pipeline of `steps` steps, in which `block` takes `block_ns` nanoseconds and then sends
/// `bytes` bytes.
fn pipeline_in(
    receive: &'static str,
    (block_ns, bytes): (u64, u64),
    steps: u64,
    block: impl Fn(u32) -> Vec<Doing>,
    first: impl Fn(u32) -> Vec<Doing>,
) -> Vec<RankInput> {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..steps {
        subject.step(BARRIER, |rank| {
            let before = u64::from(rank) * block_ns;
            let receive = calling(receive, before, 1, bytes);
            [first(rank), vec![receive], block(rank)].concat()
        });
    }
    subject.step("main/MPI_Finalize", |_| vec![]);
    let mut inputs = subject.inputs();
    for input in &mut inputs {
        let Some(node) = receive_of(input) else { continue };
        let rank = input.rank;
        let with = |partner, sent, received, waited_ns| PartnerValue {
            node,
            partner,
            sent,
            bytes: 8 * sent,
            received,
            waited_ns,
        };
        let partners = &mut input.profile.partners;
        let waited_ns = u64::from(rank) * steps * block_ns;
        partners.extend((rank > 0).then(|| with(rank - 1, 0, steps, waited_ns)));
        partners.extend((rank < 3).then(|| with(rank + 1, steps, 0, 0)));
    }
    inputs
}

#[test]
fn a_pipeline_begins_at_its_first_rank() {
    let summary = diagnose_alone(pipeline(), &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    assert_eq!(path(&loss.symptom.path), "main/sweep/MPI_Recv");
    let waits_for: Vec<(&str, f64)> =
        loss.waits_for.iter().map(|it| (it.ranks.as_str(), rounded(it.share))).collect();
    // Ranks 3 and 2 wait 1.5 s and 1 s; rank 1 waits less than half as long as rank 3.
    assert_eq!(waits_for, [("2", 0.6), ("1", 0.4)]);
    // Of the 1.5 s that a rank waits for rank 2, rank 2 itself waits 1 s for rank 1.
    let origin = loss.origin.as_ref().unwrap();
    assert!(origin.ranks.contains('0'), "{origin:?}");
    assert_eq!(loss.slow_ranks, origin.ranks);
    let matrix = summary.communication.matrix.as_ref().unwrap();
    assert_eq!(matrix.ranks.as_deref(), Some("0-3"));
    assert_eq!(matrix.calls[1], [0, 0, 10, 0]);
    assert_eq!(matrix.bytes[1], [0, 0, 80, 0]);
    assert_eq!(matrix.received[3], [0, 0, 10, 0]);
    assert_eq!(matrix.wait_s[3], [0.0, 0.0, 1.5, 0.0]);
}

#[test]
fn what_all_ranks_do_alike_before_a_pipeline_is_no_cause() {
    let block = |_| vec![doing("main/sweep/block", 50 * MS)];
    let inputs = pipeline_of(block, |_| vec![doing("main/step", 200 * MS)]);
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    assert_eq!(causes(loss).into_iter().map(|it| it.0).collect::<Vec<_>>(), ["main/sweep/block"]);
}

#[test]
fn the_matrix_does_not_depend_on_who_reduces() {
    let alone = diagnose_alone(pipeline(), &job()).unwrap();
    let summary = diagnose_on(4, &pipeline(), &job());
    assert_eq!(summary.communication, alone.communication);
    assert_eq!(summary.losses, alone.losses);
}

#[test]
fn partners_without_a_rank_are_counted_apart() {
    let mut inputs = pipeline();
    for input in &mut inputs {
        for value in &mut input.profile.partners {
            if value.received > 0 {
                value.partner = if input.rank == 1 { UNKNOWN_PARTNER } else { 99 };
            }
        }
    }
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let matrix = summary.communication.matrix.as_ref().unwrap();
    assert_eq!((matrix.unknown.received, matrix.unknown.wait_s), (30, 3.0));
    assert!(matrix.received.iter().flatten().all(|received| *received == 0));
    assert_eq!(matrix.others, Default::default());
}

#[test]
fn many_ranks_share_rows_by_clusters() {
    let mut subject = ten_steps(600, |rank| {
        let ms = if rank < 300 { 10 } else { 40 };
        let work = if rank < 300 { "main/short" } else { "main/long" };
        vec![doing("main/MPI_Recv", MS), doing(work, ms * MS)]
    });
    subject.step("main/MPI_Finalize", |_| vec![]);
    let mut inputs = subject.inputs();
    for input in &mut inputs {
        let Some(node) = node_of(input, "main/MPI_Recv") else { continue };
        let partner = (input.rank + 1) % 600;
        let value = PartnerValue { node, partner, sent: 3, bytes: 24, received: 3, waited_ns: MS };
        input.profile.partners.push(value);
    }
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let matrix = summary.communication.matrix.as_ref().unwrap();
    let clusters = matrix.clusters.as_ref().unwrap();
    assert!(matrix.ranks.is_none() && clusters.len() < 20, "{clusters:?}");
    assert_eq!(matrix.calls.iter().flatten().sum::<u64>(), 1800);
    let ranks: u32 =
        clusters.iter().map(|it| it.parse::<crate::ranks::RankSet>().unwrap().len()).sum();
    assert_eq!(ranks, 600);
}

/// The pipeline with exemplary messages of its first eight steps, on clocks that differ.
fn recorded_pipeline() -> Vec<RankInput> {
    recorded(pipeline(), 50 * MS, 8)
}

/// Adds exemplary messages of the first `count` steps to a pipeline with blocks of `block_ns`.
fn recorded(mut inputs: Vec<RankInput>, block_ns: u64, count: u32) -> Vec<RankInput> {
    for input in &mut inputs {
        let Some(node) = receive_of(input) else { continue };
        let rank = u64::from(input.rank);
        input.clock.id = format!("clock of {rank}");
        let sync_returns = input.profile.sync_returns.as_mut().unwrap();
        let ahead_ns = rank * 1000 * MS;
        sync_returns.begin_ns += ahead_ns;
        sync_returns.ends.iter_mut().for_each(|(_, end)| *end += ahead_ns);
        for number in 0..count {
            let begin_ns = u64::from(number) * 4 * block_ns;
            let message = |is_sent, partner, from_ns, to_ns| ExemplaryMessage {
                node,
                is_sent,
                partner,
                group: 1,
                tag: 5,
                number,
                posted_ns: begin_ns + from_ns,
                entered_ns: begin_ns + from_ns,
                left_ns: begin_ns + to_ns,
                waited_ns: u64::from(number) * rank * block_ns,
            };
            let messages = &mut input.profile.messages.messages;
            let own_ns = rank * block_ns;
            if rank > 0 {
                messages.push(message(false, input.rank - 1, 0, own_ns));
            }
            if rank < 3 {
                let sent = message(true, input.rank + 1, own_ns + block_ns, own_ns + block_ns);
                messages
                    .push(ExemplaryMessage { waited_ns: (u64::from(number) + 1) * own_ns, ..sent });
            }
        }
    }
    inputs
}

#[test]
fn late_senders_are_told_from_calls_without_a_record() {
    let summary = diagnose_alone(recorded_pipeline(), &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    // Eight of ten steps are recorded.
    let lateness = loss.lateness.unwrap();
    let found = [lateness.late_sender, lateness.late_receiver, lateness.unknown].map(rounded);
    assert_eq!((found, loss.pattern), ([0.8, 0.0, 0.2], Some(Pattern::LateSender)));
    let origin = loss.origin.as_ref().unwrap();
    // Of 300 ms in a step, 150 begin at rank 0 and 100 at rank 1.
    assert_eq!((origin.ranks.as_str(), rounded(origin.share)), ("0-1", 0.833333));
    assert!(!origin.changes);
    let shared = diagnose_on(4, &recorded_pipeline(), &job());
    assert_eq!(shared.losses, summary.losses);
}

/// Ranks that lose their cores, or a slow network: the work of a partner is no reason to wait.
#[test]
fn nobody_is_late_for_a_message_that_both_ends_have_begun() {
    let mut inputs = recorded(pipeline(), 50 * MS, 10);
    for input in &mut inputs {
        let messages = &mut input.profile.messages.messages;
        for sent in messages.iter_mut().filter(|message| message.is_sent) {
            let begin_ns = u64::from(sent.number) * 4 * 50 * MS;
            (sent.posted_ns, sent.entered_ns) = (begin_ns, begin_ns);
        }
    }
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    let lateness = loss.lateness.unwrap();
    assert!(lateness.transfer > 0.9, "{lateness:?}");
    assert_eq!((causes(loss), loss.pattern), (vec![], None));
    let said = "although no partner is late: 100 % of that time passes after both ends";
    assert!(loss.advice.contains(said), "{}", loss.advice);
}

/// As a sweep over small blocks: by their duration alone, the calls would be frequent ones, or
/// large messages.
#[test]
fn short_waits_for_late_senders_are_no_frequent_calls() {
    let worst = |block_us: u64, bytes: u64, recorded_steps| {
        let block_ns = block_us * MS / 1000;
        let block = |_| vec![doing("main/sweep/block", block_ns)];
        let inputs = pipeline_in(RECEIVE, (block_ns, bytes), 20, block, |_| Vec::new());
        let summary = diagnose_alone(recorded(inputs, block_ns, recorded_steps), &job()).unwrap();
        let loss = &summary.losses[0];
        (loss.kind, loss.pattern, causes(loss).remove(0).0)
    };
    let in_sweep = "main/sweep".to_owned();
    let late = (LossKind::WaitForPartner, Some(Pattern::LateSender), "main/sweep/block".to_owned());
    assert_eq!(worst(4000, 8, 20), late);
    assert_eq!(worst(4000, 8, 2), (LossKind::FrequentCommunication, None, in_sweep.clone()));
    assert_eq!(worst(4000, 1 << 20, 20), late);
    assert_eq!(worst(4000, 1 << 20, 2), (LossKind::LargeMessage, None, in_sweep));
    // A rank waits for 1.5 blocks in the mean, which at least a millisecond must take.
    assert_eq!(worst(700, 8, 20), late);
    assert_eq!(worst(600, 8, 20).0, LossKind::FrequentCommunication);
}

/// One function does all of a time step: only the order of its parts and the time from a receive to
/// a send tell which of them the next rank waits for.
#[test]
fn the_work_between_a_receive_and_a_send_is_that_of_a_stage() {
    const SOLVE: &str = "main/solve";
    let cause_of = |send: Option<&'static str>| {
        let block_and_more = |_| {
            let send = send.map(|send| calling(send, MS / 10, 1, 8));
            let parts = [doing(SOLVE, 40 * MS), doing("main/pack", 10 * MS)].into_iter();
            parts.chain(send).chain([doing("main/update", 60 * MS)]).collect()
        };
        let first = |_| vec![doing("main/assemble", 80 * MS)];
        let inputs = pipeline_in(RECEIVE_IN_MAIN, (50 * MS, 8), 10, block_and_more, first);
        let summary = diagnose_alone(recorded(inputs, 50 * MS, 10), &job()).unwrap();
        let loss = summary.losses[0].clone();
        let found = (loss.kind, loss.pattern);
        assert_eq!(found, (LossKind::WaitForPartner, Some(Pattern::LateSender)));
        let explained = loss.causes.iter().map(|cause| (path(&cause.path), rounded(cause.share)));
        explained.collect::<Vec<_>>()
    };
    let of_stage = [(SOLVE.to_owned(), 0.8), ("main/pack".to_owned(), 0.2)];
    assert_eq!(cause_of(Some("main/MPI_Send")), of_stage);
    assert_eq!(cause_of(Some("main/pass_on/MPI_Send")), of_stage);
    // Sends are mostly too short for temporal context trees.
    assert_eq!(cause_of(None), of_stage);
}

#[test]
fn without_exemplary_messages_late_partners_are_unknown() {
    let summary = diagnose_alone(pipeline(), &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    assert_eq!((loss.lateness.unwrap().unknown, loss.pattern), (1.0, None));
}

/// As ranks that poll: nearly all of their calls complete no message.
#[test]
fn partners_are_not_known_where_messages_explain_little_of_the_waiting() {
    let mut inputs = pipeline();
    for value in inputs.iter_mut().flat_map(|input| &mut input.profile.partners) {
        value.waited_ns /= 3;
    }
    let summary = diagnose_alone(inputs, &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    assert_eq!((&loss.waits_for[..], &loss.lateness, &loss.origin), (&[][..], &None, &None));
    assert_eq!(summary.thresholds["min_explained_wait_fraction"], 0.5);
}

/// Producers (even ranks) work, each in a function of its own, and send to the next rank, which
/// waits for `produce_ms` and consumes for `consume_ms`, ten times.
fn in_pairs(pairs: u32, produce_ms: fn(u32) -> u64, consume_ms: u64) -> Vec<RankInput> {
    in_pairs_that(["main/forge/hammer", "main/weave/spin"], pairs, produce_ms, consume_ms)
}

/// As [`in_pairs`], with the work of the producers.
fn in_pairs_that(
    make: [&'static str; 2],
    pairs: u32,
    produce_ms: fn(u32) -> u64,
    consume_ms: u64,
) -> Vec<RankInput> {
    const SEND: [&str; 2] = ["main/forge/MPI_Send", "main/weave/MPI_Send"];
    const RECEIVE: &str = "main/consume/MPI_Recv";
    let mut subject = Subject::new(2 * pairs);
    subject.step(BARRIER, |_| vec![]);
    subject.step("main/MPI_Finalize", |rank| {
        let (pair, wait_ns) = (rank as usize / 2, 10 * produce_ms(rank / 2) * MS);
        match rank % 2 {
            0 => vec![doing(make[pair], wait_ns), doing(SEND[pair], 0)],
            _ => vec![doing(RECEIVE, wait_ns), doing("main/consume/eat", 10 * consume_ms * MS)],
        }
    });
    let mut inputs = subject.inputs();
    for input in &mut inputs {
        let (rank, pair) = (input.rank, input.rank / 2);
        let call = if rank % 2 == 0 { SEND[pair as usize] } else { RECEIVE };
        let Some(node) = node_of(input, call) else { continue };
        let received = u64::from(rank % 2) * 10;
        let (sent, waited_ns) = (10 - received, received * produce_ms(pair) * MS);
        let value =
            PartnerValue { node, partner: rank ^ 1, sent, bytes: 8 * sent, received, waited_ns };
        input.profile.partners.push(value);
    }
    inputs
}

/// While one producer works, the other one does, too: no rank lets all others wait.
#[test]
fn pairs_of_producers_and_consumers_are_no_serialization() {
    let even: fn(u32) -> u64 = |_| 100;
    // The second consumer waits for 600 ms, and at the end for the first pair.
    let uneven: fn(u32) -> u64 = |pair| if pair == 0 { 100 } else { 60 };
    let forms = [(even, 20, [0.5, 0.5]), (uneven, 5, [0.625, 0.375])];
    for (produce_ms, consume_ms, shares) in forms {
        let summary = diagnose_alone(in_pairs(2, produce_ms, consume_ms), &job()).unwrap();
        let kinds: Vec<_> = summary.losses.iter().map(|loss| loss.kind).collect();
        assert!(!kinds.contains(&LossKind::Serialization), "{kinds:?}");
        let mut in_receive = summary
            .losses
            .iter()
            .filter(|loss| path(&loss.symptom.path) == "main/consume/MPI_Recv");
        let loss = in_receive.next().unwrap();
        assert!(in_receive.next().is_none(), "{kinds:?}");
        assert_eq!((loss.kind, loss.evened_out), (LossKind::WaitForPartner, false));
        assert_eq!((&*loss.waiting_ranks, &*loss.slow_ranks), ("1,3", "0,2"));
        let waits_for = loss.waits_for.iter().map(|it| (it.ranks.as_str(), rounded(it.share)));
        assert_eq!(waits_for.collect::<Vec<_>>(), [("0", shares[0]), ("2", shares[1])]);
        let mut work: Vec<String> = causes(loss).into_iter().map(|it| it.0).collect();
        work.sort();
        assert_eq!(work, ["main/forge/hammer", "main/weave/spin"]);
    }
    // A single pair waits for its producer.
    let summary = diagnose_alone(in_pairs(1, |_| 100, 0), &job()).unwrap();
    assert_eq!(summary.losses[0].kind, LossKind::Serialization);
}

/// In a Python program, each call of a function is several functions and loops of the interpreter.
#[test]
fn call_paths_of_thousands_of_frames_have_causes() {
    let deep = |end: &str| -> &'static str {
        Box::leak(format!("main/{}{end}", "eval/".repeat(3000)).into_boxed_str())
    };
    let make = [deep("hammer"), deep("spin")];
    let summary = diagnose_alone(in_pairs_that(make, 2, |_| 100, 20), &job()).unwrap();
    let loss = summary.losses.iter().find(|loss| loss.kind == LossKind::WaitForPartner).unwrap();
    let mut work: Vec<String> = causes(loss).into_iter().map(|it| it.0).collect();
    work.sort();
    assert_eq!(work, make);
    let work = deep("relax");
    let summary = verdict(&ten_steps(4, |rank| vec![doing(work, u64::from(rank + 1) * 50 * MS)]));
    assert_eq!(causes(&summary.losses[0])[0].0, work);
}
