//! Tests of the call table.

use super::*;
use crate::clnt::{Repeat, Resend};
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn opts(timeout: u64, resend: Resend, repeat: Repeat) -> SendOptions {
    SendOptions { timeout: S * timeout as u32, resend, repeat, oneway: false }
}

fn reply(xid: u32) -> Vec<u8> {
    [xid, 1, 0].into_iter().flat_map(u32::to_be_bytes).collect()
}

fn lost() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// A table in which calls of the given options were started, and their ids.
fn table(retransmit: Option<Retransmit>, all: &[SendOptions]) -> (CallTable, Vec<(u32, CallId)>) {
    let mut t = CallTable::new(16, 7, retransmit);
    let mut ids = Vec::new();
    for o in all {
        let xid = t.reserve_xid();
        ids.push((xid, t.start(xid, xid.to_be_bytes().to_vec(), *o, Duration::ZERO).unwrap()));
    }
    (t, ids)
}

fn send_all(t: &mut CallTable, now: Duration) -> usize {
    std::iter::from_fn(|| t.wants_write().then(|| t.on_sent(true, now))).count()
}

#[test]
fn replies_match_in_any_order_once() {
    let (mut t, ids) = table(None, &[SendOptions::default(); 3]);
    assert!(!t.on_message(reply(ids[0].0)), "nothing was sent yet");
    assert_eq!(t.queued().map(|(_, m)| m.to_vec()).collect::<Vec<_>>().concat().len(), 12);
    assert_eq!(send_all(&mut t, S), 3);
    assert!(t.on_message(reply(ids[2].0)) && t.on_message(reply(ids[0].0)));
    assert!(!t.on_message(reply(ids[2].0)), "a duplicate");
    assert!(t.take(ids[1].1).is_none());
    assert_eq!(t.take(ids[2].1).unwrap().unwrap(), reply(ids[2].0));
    assert!(matches!(t.take(ids[2].1), Some(Err(XprtError::NoSuchCall))));
    assert_eq!((t.waiting(), t.stray()), (1, 2));
}

#[test]
fn what_is_no_reply_is_dropped() {
    let (mut t, ids) = table(None, &[SendOptions::default()]);
    send_all(&mut t, S);
    let mut call = reply(ids[0].0);
    call[7] = 0;
    for m in [vec![], vec![1, 2, 3], call, reply(ids[0].0.wrapping_add(9)), reply(ids[0].0)[..7].to_vec()] {
        assert!(!t.on_message(m));
    }
    assert_eq!((t.stray(), t.waiting()), (5, 1));
}

#[test]
fn retransmissions_double_up_to_the_cap_and_end_with_the_total() {
    let r = Retransmit { first: S, most: S * 4 };
    let all = [Repeat::Unknown, Repeat::Harmful].map(|p| opts(20, Resend::Safe, p));
    let (mut t, ids) = table(Some(r), &all);
    assert_eq!(send_all(&mut t, Duration::ZERO), 2);
    let mut sent_at = vec![];
    while let Some(now) = t.next_timer() {
        t.expire(now, None);
        if send_all(&mut t, now) == 1 {
            sent_at.push(now.as_secs());
        }
    }
    assert_eq!(sent_at, [1, 3, 7, 11, 15, 19]);
    assert!(matches!(t.take(ids[0].1), Some(Err(XprtError::TimedOut { sends: 7 }))));
    assert!(matches!(t.take(ids[1].1), Some(Err(XprtError::TimedOut { sends: 1 }))));
}

#[test]
fn only_what_is_safe_is_sent_again_after_a_disconnect() {
    use {Repeat::*, Resend::*};
    let all = [
        (Safe, Harmless),
        (Safe, Harmful),
        (Safe, Unknown),
        (Always, Harmful),
        (Never, Harmless),
        (Never, Harmful),
    ];
    let (mut t, ids) = table(None, &all.map(|(r, p)| opts(9, r, p)));
    (0..5).for_each(|_| t.on_sent(true, S));
    t.on_disconnect(&lost());
    let again: Vec<u32> = t.queued().map(|(_, m)| u32::from_be_bytes(m.try_into().unwrap())).collect();
    assert_eq!(again, [ids[0].0, ids[3].0, ids[5].0], "in order, and the one never sent too");
    for i in [1, 2, 4] {
        assert!(matches!(t.take(ids[i].1), Some(Err(XprtError::Lost { maybe_ran: true, .. }))));
    }
    assert!(!t.on_message(reply(ids[5].0)));
    t.expire(S * 9, Some(&lost()));
    assert!(matches!(t.take(ids[0].1), Some(Err(XprtError::Lost { maybe_ran: true, .. }))));
    assert!(matches!(t.take(ids[5].1), Some(Err(XprtError::Connect(_)))));
}

#[test]
fn a_stream_that_is_no_rpc_fails_what_was_sent() {
    let (mut t, ids) = table(None, &[opts(9, Resend::Always, Repeat::Harmless); 2]);
    t.on_sent(false, S);
    t.on_bad_stream(RecordError::TooLarge(1 << 31));
    assert!(matches!(t.take(ids[0].1), Some(Err(XprtError::BadStream(RecordError::TooLarge(_))))));
    assert_eq!(t.queued().count(), 1);
}

#[test]
fn one_way_calls_end_when_they_are_sent() {
    let one = SendOptions { oneway: true, ..SendOptions::default() };
    let (mut t, ids) = table(None, &[one, one]);
    t.on_sent(true, S);
    t.on_sent(false, S);
    assert!(t.take(ids[0].1).unwrap().unwrap().is_empty());
    assert!(t.take(ids[1].1).is_none());
    assert!(!t.on_message(reply(ids[1].0)));
    t.on_rest_sent(ids[1].1);
    assert!(t.take(ids[1].1).unwrap().is_ok());
}

#[test]
fn outcomes_nobody_takes_make_room_when_their_time_is_over() {
    let (mut t, ids) = table(None, &[opts(5, Resend::Safe, Repeat::Unknown); 16]);
    send_all(&mut t, S);
    assert!(t.on_message(reply(ids[3].0)));
    assert!(matches!(t.start(1, vec![], SendOptions::default(), S), Err(XprtError::Busy(16))));
    let id = t.start(1, vec![], SendOptions::default(), S * 5).unwrap();
    assert!(matches!(t.take(ids[3].1), Some(Err(XprtError::NoSuchCall))), "the slot is another call's now");
    t.forget(id);
    assert_eq!((t.waiting(), t.queued().count()), (15, 0));
}

#[test]
fn transaction_ids_wrap_and_skip_those_in_use() {
    let mut t = CallTable::new(8, u32::MAX, None);
    assert_eq!((t.reserve_xid(), t.reserve_xid()), (u32::MAX, 0));
    t.start(1, vec![], SendOptions::default(), S).unwrap();
    assert!(t.start(1, vec![], SendOptions::default(), S).is_err());
    assert_eq!(t.reserve_xid(), 2);
}

#[derive(Debug, Clone)]
enum Step {
    Start(u8, u8, bool),
    Sent(bool),
    Reply(u8),
    Lost,
    Bad,
    Forget(u8),
    Take(u8),
    Later(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8, 0..3u8, any::<bool>()).prop_map(|(a, b, c)| Step::Start(a, b, c)),
        3 => any::<bool>().prop_map(Step::Sent),
        2 => any::<u8>().prop_map(Step::Reply),
        1 => Just(Step::Lost),
        1 => Just(Step::Bad),
        1 => any::<u8>().prop_map(Step::Forget),
        2 => any::<u8>().prop_map(Step::Take),
        2 => (0..4u8).prop_map(Step::Later),
    ]
}

/// However many are submitted: the bound holds, and what is refused or given up leaves nothing behind.
#[test]
fn a_million_calls_that_nobody_reads_the_replies_of() {
    let mut t = CallTable::new(DEFAULT_CALLS, 7, None);
    t.track_ended();
    let submit = |t: &mut CallTable, n: u32| -> Vec<CallId> {
        let start = |_| {
            let xid = t.reserve_xid();
            match t.start(xid, vec![0; 40], SendOptions::default(), Duration::ZERO) {
                Err(XprtError::Busy(DEFAULT_CALLS)) => None,
                r => Some(r.unwrap()),
            }
        };
        (0..n).filter_map(start).collect()
    };
    let taken = submit(&mut t, 1_000_000);
    assert_eq!((taken.len(), t.queued().count()), (DEFAULT_CALLS, DEFAULT_CALLS));
    // Answered, but nobody takes the outcomes.
    assert_eq!(send_all(&mut t, Duration::ZERO), DEFAULT_CALLS);
    assert!((7..).take(DEFAULT_CALLS).all(|xid| t.on_message(reply(xid))));
    assert_eq!(submit(&mut t, 1_000_000).len(), 0);
    assert!(t.drain_ended().eq(taken.iter().copied()));
    taken.into_iter().for_each(|id| t.forget(id));
    for _ in 0..1_000_000 {
        submit(&mut t, 1).into_iter().for_each(|id| t.forget(id));
    }
    assert_eq!((t.slots.len(), t.waiting(), t.drain_ended().count()), (0, 0, 0));
    for held in [t.slots.capacity(), t.queue.capacity(), t.waiting.capacity()] {
        assert!(held <= 4 * DEFAULT_CALLS, "{held}");
    }
}

#[test]
fn the_timer_is_never_later_than_the_next_thing_to_do() {
    let all = [30, 10, 20].map(|s| opts(s, Resend::Safe, Repeat::Unknown));
    let (mut t, ids) = table(None, &all);
    assert_eq!(t.next_timer(), Some(S * 10));
    send_all(&mut t, S);
    assert!(t.on_message(reply(ids[1].0)));
    t.expire(S * 10, None);
    assert_eq!((t.next_timer(), t.waiting()), (Some(S * 20), 2), "the earliest ended otherwise");
    t.expire(S * 25, None);
    assert_eq!((t.next_timer(), t.waiting()), (Some(S * 30), 1));
    t.forget(ids[0].1);
    assert_eq!(t.next_timer(), None);
}

proptest! {
    /// Whatever happens in whatever order: the table stays bounded, the queue holds waiting calls once each, every
    /// call ends exactly once and no later than its time, and no call that must not run twice is sent twice.
    #[test]
    fn every_call_ends_once(steps in prop::collection::vec(step(), 0..120), datagram: bool) {
        let r = datagram.then(Retransmit::default);
        let mut t = CallTable::new(6, u32::MAX - 3, r);
        let mut now = Duration::ZERO;
        let mut live: Vec<(u32, CallId, SendOptions)> = vec![];
        let mut sends: HashMap<CallId, u32> = HashMap::new();
        for s in steps {
            let pick = |n: u8| (!live.is_empty()).then(|| usize::from(n) % live.len());
            match s {
                Step::Start(a, b, oneway) => {
                    let resend = [Resend::Safe, Resend::Always, Resend::Never][usize::from(a)];
                    let repeat = [Repeat::Harmless, Repeat::Harmful, Repeat::Unknown][usize::from(b)];
                    let o = SendOptions { oneway, ..opts(3, resend, repeat) };
                    let xid = t.reserve_xid();
                    prop_assert!(live.iter().all(|(x, id, _)| *x != xid || t.is_done(*id)));
                    match t.start(xid, vec![1; 8], o, now) {
                        Ok(id) => live.push((xid, id, o)),
                        Err(e) => prop_assert!(matches!(e, XprtError::Busy(6))),
                    }
                }
                Step::Sent(whole) => {
                    let first = t.queued().next().map(|(id, m)| (id, m.len()));
                    if let Some((id, len)) = first {
                        prop_assert_eq!(len, 8);
                        *sends.entry(id).or_default() += 1;
                    }
                    t.on_sent(whole, now);
                }
                Step::Reply(n) => {
                    if let Some(i) = pick(n) {
                        let (xid, id, o) = live[i];
                        let due = !t.is_done(id) && sends.contains_key(&id) && !o.oneway;
                        prop_assert_eq!(t.on_message(reply(xid)), due);
                    }
                }
                Step::Lost => t.on_disconnect(&lost()),
                Step::Bad => t.on_bad_stream(RecordError::TooManyFragments),
                Step::Forget(n) => {
                    if let Some(i) = pick(n) {
                        t.forget(live.remove(i).1);
                    }
                }
                Step::Take(n) => {
                    if let Some(i) = pick(n) {
                        let id = live[i].1;
                        let done = t.is_done(id);
                        prop_assert_eq!(t.take(id).is_some(), done);
                        if done {
                            live.remove(i);
                            prop_assert!(matches!(t.take(id), Some(Err(XprtError::NoSuchCall))));
                        }
                    }
                }
                Step::Later(n) => {
                    now += S * u32::from(n);
                    t.expire(now, None);
                    prop_assert!(t.next_timer().is_none_or(|next| next > now || t.wants_write()));
                }
            }
            let queued: Vec<CallId> = t.queued().map(|(id, _)| id).collect();
            let once: std::collections::HashSet<_> = queued.iter().collect();
            prop_assert_eq!(once.len(), queued.len());
            prop_assert!(queued.iter().all(|id| !t.is_done(*id)));
            prop_assert!(t.slots.len() <= 6);
            prop_assert_eq!(t.waiting(), live.iter().filter(|(_, id, _)| !t.is_done(*id)).count());
        }
        for (_, id, o) in &live {
            let n = sends.get(id).copied().unwrap_or(0);
            let many = o.may_resend() || datagram && o.may_retransmit();
            prop_assert!(n <= 1 || many, "{} sends of {:?}", n, o);
        }
        t.expire(now + S * 3, None);
        prop_assert_eq!((t.waiting(), t.queued().count(), t.next_timer()), (0, 0, None));
    }
}
