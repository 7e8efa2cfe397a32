//! What the pages of a reply of 1 MiB cost, by where they come from, in one thread. Figures, not assertions:
//! `cargo bench -p sunrpc --bench pages`.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;
use sunrpc::page::{BoxedSource, PAGE_SIZE, Page, PageDepot, PagePool};

/// Pages of a reply.
const PAGES: usize = (1 << 20) / PAGE_SIZE;

/// The best of many runs, in us per reply: what other load on the machine takes is in the others.
fn best(mut reply: impl FnMut()) -> f64 {
    const N: u32 = 100;
    let mut run = || {
        let start = Instant::now();
        (0..N).for_each(|_| reply());
        start.elapsed().as_secs_f64() * 1e6 / f64::from(N)
    };
    run();
    (0..30).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// The network or a file would write all of it; a byte a page is what the system has to make it for.
fn touch(page: &mut [u8], yes: bool) {
    if let Some(b) = page.first_mut().filter(|_| yes) {
        *b = black_box(1);
    }
}

/// Takes the pages of a reply from one pool and gives them to another, which may be the same.
fn cost(take: &mut PagePool, put: Option<&mut PagePool>, touched: bool) -> f64 {
    let mut held: Vec<Page> = Vec::with_capacity(PAGES);
    let mut put = put;
    best(|| {
        assert!(take.ensure(PAGES), "the depot has pages");
        for _ in 0..PAGES {
            let Some(mut p) = take.take() else { return };
            touch(&mut p, touched);
            held.push(p);
        }
        for p in held.drain(..) {
            match &mut put {
                Some(other) => other.put(p),
                None => take.put(p),
            }
        }
    })
}

fn main() {
    println!("us for the {PAGES} pages of a reply of 1 MiB          not touched   a byte of each written");
    let row =
        |name: &str, f: &dyn Fn(bool) -> f64| println!("{name:<52} {:>10.2} {:>20.2}", f(false), f(true));
    let depot = || PageDepot::new(BoxedSource, 1 << 16);
    row("a worker's pool", &|t| cost(&mut PagePool::new(depot()), None, t));
    row("the depot, 256 pages a lock (another thread returns)", &|t| {
        let d = depot();
        cost(&mut PagePool::new(d.clone()), Some(&mut PagePool::new(d)), t)
    });
    row("a list behind a lock, one page a lock", &|touched| {
        let list: Mutex<Vec<Box<[u8; PAGE_SIZE]>>> =
            Mutex::new((0..PAGES).map(|_| Box::new([0; PAGE_SIZE])).collect());
        let mut held = Vec::with_capacity(PAGES);
        best(|| {
            for _ in 0..PAGES {
                let Some(mut p) = list.lock().ok().and_then(|mut l| l.pop()) else { return };
                touch(&mut p[..], touched);
                held.push(p);
            }
            for p in held.drain(..) {
                if let Ok(mut l) = list.lock() {
                    l.push(p);
                }
            }
        })
    });
    row("malloc of each page", &|touched| {
        let mut held: Vec<Vec<u8>> = Vec::with_capacity(PAGES);
        best(|| {
            for _ in 0..PAGES {
                let mut p: Vec<u8> = Vec::with_capacity(PAGE_SIZE);
                if touched {
                    p.push(black_box(1));
                }
                held.push(black_box(p));
            }
            held.clear();
        })
    });
    row("malloc of 1 MiB, which goes back to the system", &|touched| {
        best(|| {
            let mut m: Vec<u8> = black_box(vec![0; 1 << 20]);
            m.chunks_mut(PAGE_SIZE).for_each(|p| touch(p, touched));
            black_box(&m);
        })
    });
}
