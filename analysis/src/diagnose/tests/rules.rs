//! Labels of functions from the user's rules.

use super::*;
use crate::rules::Rules;
use crate::thread_ranks::run;

/// Rank 0 is slow. Rank 1 spins until rank 0's message arrives, and a little longer; the others
/// wait for both in the barrier.
fn spinning() -> Subject {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank == 0 { 80 } else { 40 };
            let mut part = vec![doing("main/step/assemble", slow_ms * MS)];
            if rank == 1 {
                part.push(doing("main/step/hear/spin", 42 * MS));
            }
            part
        });
    }
    subject
}

fn with_rules(rules: &str) -> JobInfo {
    JobInfo { rules: Rules::from(rules.to_owned()), ..job() }
}

fn label_of(summary: &Summary, wanted: &str) -> Label {
    let nodes = &summary.tree.nodes;
    let at = (0..nodes.len()).find(|index| path(&summary.tree.path(*index as u32)) == wanted);
    nodes[at.unwrap()].label
}

#[test]
fn a_wait_is_no_cause_once_the_user_says_that_it_is_one() {
    let subject = spinning();
    let summary = verdict(&subject);
    let hear = "main/step/hear/spin".to_owned();
    assert!(
        causes(&summary.losses[0]).iter().any(|(path, _)| *path == hear),
        "work like any other"
    );
    assert_eq!(label_of(&summary, &hear), Label::Computation);
    assert_eq!(summary.efficiency.load_balance.map(rounded), Some(rounded(0.605 / 0.82)));

    let summary =
        diagnose_alone(subject.inputs(), &with_rules("app:hear = wait_partner\n")).unwrap();
    // The loss shows in both waits, and is reported with the one in which most ranks wait.
    let (uneven, rest): (Vec<&Loss>, Vec<&Loss>) =
        summary.losses.iter().partition(|loss| loss.kind == LossKind::LoadImbalance);
    let symptoms: Vec<String> = uneven.iter().map(|it| path(&it.symptom.path)).collect();
    assert_eq!(symptoms, [BARRIER]);
    assert_eq!(rounded(uneven.iter().map(|loss| loss.seconds).sum()), 0.3);
    // Rank 1 waits 2 ms of each step longer than the slowest rank works.
    assert_eq!(rest.iter().map(|loss| rounded(loss.seconds)).collect::<Vec<_>>(), [0.02]);
    for loss in uneven {
        assert_eq!(causes(loss), [("main/step/assemble".to_owned(), 0.3)]);
        assert_eq!((&*loss.slow_ranks, loss.evened_out), ("0", false));
    }
    assert_eq!(label_of(&summary, &hear), Label::WaitPartner);
    assert_eq!(label_of(&summary, "main/step/hear"), Label::WaitPartner);
    assert_eq!(label_of(&summary, "main/step"), Label::Computation);
    assert_eq!(summary.efficiency.load_balance.map(rounded), Some(rounded(0.5 / 0.8)));
}

#[test]
fn a_wait_that_the_user_names_may_be_the_symptom() {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| match rank {
            0 => vec![doing("main/assemble", 80 * MS)],
            _ => vec![doing("main/assemble", 40 * MS), doing("main/exchange/spin", 40 * MS)],
        });
    }
    assert_eq!(verdict(&subject).losses, [], "all ranks work all the time");
    let job = with_rules("exchange = communication");
    let summary = diagnose_alone(subject.inputs(), &job).unwrap();
    let loss = only_loss(&summary);
    assert_eq!(causes(loss), [("main/assemble".to_owned(), 0.3)]);
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("0", "1-3"));
    assert_eq!(path(&loss.symptom.path), "main/exchange");
    assert_eq!((loss.label, rounded(loss.symptom.max_s)), (Label::Communication, 0.4));
}

#[test]
fn a_synchronisation_within_the_users_communication_counts_once() {
    let mut subject = Subject::new(4);
    for _ in 0..10 {
        subject.step("main/exchange/MPI_Barrier", |rank| {
            let slow_ms = if rank == 0 { 80 } else { 40 };
            vec![doing("main/assemble", slow_ms * MS), doing("main/exchange", 10 * MS)]
        });
    }
    let plain = verdict(&subject);
    let job = with_rules("exchange = communication");
    let summary = diagnose_alone(subject.inputs(), &job).unwrap();
    // All ranks also communicate for 10 ms, which is a second loss.
    let kinds: Vec<LossKind> = summary.losses.iter().map(|loss| loss.kind).collect();
    assert_eq!(kinds, [LossKind::LoadImbalance, LossKind::WaitForPartner]);
    let (loss, truth) = (&summary.losses[0], only_loss(&plain));
    assert_eq!(path(&loss.symptom.path), "main/exchange/MPI_Barrier");
    assert_eq!((&loss.causes, &loss.symptom), (&truth.causes, &truth.symptom));
}

#[test]
fn what_process_0_is_told_holds_for_all() {
    let subject = spinning();
    let user_rules = with_rules("hear = wait_partner");
    let truth = diagnose_alone(subject.inputs(), &user_rules).unwrap();
    let summaries = run(4, |comm| {
        let job = if comm.rank() == 0 { user_rules.clone() } else { with_rules("assemble = wait") };
        diagnose(comm, vec![subject.input(3 - comm.rank())], &job).unwrap()
    });
    assert_eq!(summaries[0].as_ref(), Some(&truth));
}

#[test]
fn a_function_is_for_what_the_user_says_whatever_it_calls() {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| {
        vec![doing("main/read_in", 10 * MS), doing("main/read_in/MPI_Recv", 90 * MS)]
    });
    let label =
        |job: &JobInfo| label_of(&diagnose_alone(subject.inputs(), job).unwrap(), "main/read_in");
    assert_eq!(label(&job()), Label::Communication, "that is what it spends its time on");
    assert_eq!(label(&with_rules("read_in = io")), Label::Io);
}
