use super::*;

/// Lock held while a test forks or closes a token: a child keeps the tokens of its parent open.
static FORKS: std::sync::RwLock<()> = std::sync::RwLock::new(());

fn token(name: &str, rank: &str) -> Token {
    let prefix = format!("plimsoll-test-{name}-{}-", std::process::id());
    Token::leave_as(prefix, rank, &|socket| socket).expect("abstract sockets exist on Linux")
}

/// Waits for the verdict of a first rank that never met other nodes.
fn listen(token: &mut Token, group: &NodeGroup) -> Option<bool> {
    token.listen(group, TIMEOUT, |_| unreachable!("no other node was asked"))
}

#[test]
fn a_token_is_visible_until_dropped() {
    let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let token = Token::leave(&|socket| socket).expect("abstract sockets exist on Linux");
    let company_of_one = token.group().expect("/proc is mounted");
    assert_eq!(company_of_one.size(), 1);
    assert!(token.leads(&company_of_one));
    let prefix = token.prefix.clone();
    drop(token);
    let sockets = fs::read_to_string("/proc/net/unix").expect("/proc is mounted");
    assert_eq!(group(&sockets, &prefix, |_| true), NodeGroup::default());
}

#[test]
fn only_tokens_of_the_same_job_count() {
    let sockets = "Num RefCount Protocol Flags Type St Inode Path\n\
        0000: 00000002 00000000 00000000 0002 01 0 @plimsoll-7-9---99\n\
        0000: 00000002 00000000 00000000 0002 01 1 @plimsoll-7-9--10-100\n\
        0000: 00000002 00000000 00000000 0002 01 2 @plimsoll-7-9--2-101\n\
        0000: 00000002 00000000 00000000 0002 01 3 @plimsoll-71-9--0-102\n\
        0000: 00000002 00000000 00000000 0002 01 4 /run/plimsoll-7-9--1-103\n\
        0000: 00000002 00000000 00000000 0002 01 5\n";
    let found = group(sockets, "plimsoll-7-9--", |_| true);
    let names = ["plimsoll-7-9--2-101", "plimsoll-7-9--10-100", "plimsoll-7-9---99"];
    assert_eq!(found, NodeGroup { names: names.map(str::to_owned).into() });
}

#[test]
fn the_others_hear_the_first() {
    let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    for together in [true, false] {
        let (mut first, mut second) = (token("hear", "1"), token("hear", "2"));
        let group = first.group().expect("/proc is mounted");
        assert!(first.leads(&group) && !second.leads(&group));
        let verdict = first.tell(together, &|socket| socket).expect("the name is free");
        assert_eq!(verdict, together);
        assert_eq!(second.group().expect("/proc is mounted"), group);
        assert_eq!(listen(&mut second, &group), Some(together));
        drop(first);
        assert_eq!(listen(&mut second, &group), None);
    }
}

#[test]
fn a_name_that_somebody_has_taken_gets_a_number() {
    let squatted = format!("plimsoll-test-taken-{0}-3-{0}", std::process::id());
    let address = SocketAddr::from_abstract_name(&squatted).expect("a short name");
    let _squatter = UnixDatagram::bind_addr(&address).expect("the name is free");
    let token = token("taken", "3");
    assert!(token.name.starts_with(&format!("{squatted}.")), "{}", token.name);
    assert!(token.group().expect("/proc is mounted").names.contains(&token.name));
}

/// Binds names as another user, in a child process, while `action` runs.
fn while_another_user_holds(names: &[String], action: impl FnOnce()) -> bool {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        println!("SKIPPED: only root can act as another user");
        return false;
    }
    let _child = FORKS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    let addresses: Vec<_> = names.iter().map(SocketAddr::from_abstract_name).collect();
    // SAFETY: the child calls nothing that takes a lock before it waits to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system calls.
        let became = unsafe { libc::setgid(65534) == 0 && libc::setuid(65534) == 0 };
        let held: Vec<_> = addresses.iter().flatten().map(UnixDatagram::bind_addr).collect();
        let _ = became && held.iter().all(Result::is_ok);
        loop {
            // SAFETY: waits for the signal that ends it.
            unsafe { libc::pause() };
        }
    }
    let is_bound = || {
        let sockets = fs::read_to_string(SOCKETS).unwrap_or_default();
        names.iter().all(|name| sockets.contains(name.as_str()))
    };
    let begin = Instant::now();
    while !is_bound() && begin.elapsed() < Duration::from_secs(10) {
        thread::sleep(MIN_PAUSE);
    }
    assert!(is_bound(), "the other user holds the names");
    action();
    // SAFETY: the child is ours and was not waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    true
}

#[test]
fn forgeries_of_another_user_are_ignored() {
    let (mut first, mut second) = (token("forged", "1"), token("forged", "2"));
    // A token that sorts first, and a verdict in the name of the true first rank.
    let forged = [format!("{}0-1", first.prefix), verdict_name(&first.name, true)];
    while_another_user_holds(&forged, || {
        let group = second.group().expect("/proc is mounted");
        assert_eq!(group.size(), 2, "{group:?}");
        assert!(first.leads(&group));
        first.tell(false, &|socket| socket).expect("the name is free");
        assert_eq!(listen(&mut second, &group), Some(false));
    });
}

#[test]
fn a_verdict_finds_a_name_where_another_user_holds_it() {
    let (mut first, mut second) = (token("squat", "1"), token("squat", "2"));
    let both = [true, false].map(|together| verdict_name(&first.name, together));
    while_another_user_holds(&both, || {
        let group = second.group().expect("/proc is mounted");
        first.tell(true, &|socket| socket).expect("another name is free");
        assert_eq!(listen(&mut second, &group), Some(true));
    });
}

/// Makes a first rank that has left MPI_Init and is silent, and a second rank that waits for it.
fn silent(name: &str) -> (Token, Token, NodeGroup) {
    let (mut first, second) = (token(name, "1"), token(name, "2"));
    first.left_init();
    let group = first.group().expect("/proc is mounted");
    (first, second, group)
}

#[test]
fn a_silent_first_rank_is_given_up_within_a_second() {
    let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut first, mut second, group) = silent("silent");
    let begin = Instant::now();
    assert_eq!(listen(&mut second, &group), Some(false));
    let waited = begin.elapsed();
    assert!(waited >= TIMEOUT && waited < TIMEOUT + Duration::from_millis(900), "{waited:?}");
    // If the first rank continues after all, it learns that the others do not count on it.
    let decision = first.decision().expect("memory files exist on Linux");
    assert!(!decision.ask(7) && !decision.goes_on());
    assert!(!first.tell(true, &|socket| socket).expect("the name is free"));
}

#[test]
fn a_first_rank_that_is_at_work_is_waited_for() {
    let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut first, mut second, group) = silent("works");
    thread::scope(|scope| {
        let heard = scope.spawn(|| listen(&mut second, &group));
        for _ in 0..16 {
            thread::sleep(TIMEOUT / 8);
            assert!(first.decision().is_some_and(Decision::goes_on));
        }
        assert!(first.tell(true, &|socket| socket).expect("the name is free"));
        assert_eq!(heard.join().expect("it does not panic"), Some(true));
    });
}

#[test]
fn a_first_rank_that_is_in_mpi_init_is_waited_for() {
    let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut first, mut second) = (token("starts", "1"), token("starts", "2"));
    let group = first.group().expect("/proc is mounted");
    thread::scope(|scope| {
        let heard = scope.spawn(|| listen(&mut second, &group));
        thread::sleep(2 * TIMEOUT);
        first.left_init();
        assert!(first.tell(true, &|socket| socket).expect("the name is free"));
        assert_eq!(heard.join().expect("it does not panic"), Some(true));
    });
}

#[test]
fn a_rank_that_other_nodes_count_on_is_not_given_up() {
    let _no_child = FORKS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    for together in [true, false] {
        let (mut first, mut second, group) = silent("asked");
        assert!(first.decision().is_some_and(|decision| decision.ask(7)));
        let settle = |mailbox| {
            assert_eq!(mailbox, 7);
            together
        };
        assert_eq!(second.listen(&group, TIMEOUT, settle), Some(together));
        // The first rank asks no further node, and gets the same result.
        assert!(first.decision().is_some_and(|decision| !decision.goes_on()));
        let verdict = first.tell(together, &|socket| socket).expect("the name is free");
        assert_eq!(verdict, together);
    }
}
