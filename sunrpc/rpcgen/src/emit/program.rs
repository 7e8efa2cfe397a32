//! Server traits, dispatch, clients.

use super::codec::{Place, Take};
use super::{Emit, Form, line};
use crate::build::grouped;
use crate::model::*;
use std::fmt::Write as _;

/// Most bytes of a result whose type has no smaller bound: one record of 1 MiB of data, and room for what goes with
/// it.
const MAX_RESULT: u64 = (1 << 20) + 3072;

impl Emit<'_> {
    pub(super) fn programs(&mut self) {
        let model = self.model;
        for p in &model.programs {
            for v in &p.versions {
                self.server_trait(p, v);
                self.server(p, v);
                self.dispatch(v);
                self.client(p, v);
            }
        }
    }

    fn result(&self, proc: &Proc) -> String {
        proc.result.map_or("()".to_owned(), |e| self.elem(e, Form::Owned))
    }

    fn server_trait(&mut self, p: &Program, v: &Version) {
        line!(self, "/// What a server of version {} of program `{}` ({}) does.", v.number, p.name, p.place);
        line!(self, "pub trait {}: Send + Sync + 'static {{", v.rust_trait);
        for proc in &v.procs {
            let args: Vec<_> =
                proc.args.iter().map(|(n, e)| format!(", {n}: {}", self.elem(*e, Form::Owned))).collect();
            let sig = format!("fn {}(&self, cx: &mut Call<'_>{})", proc.method, args.concat());
            line!(self, "    /// `{}`", proc.text);
            if is_null(proc) {
                line!(self, "    {sig} -> Outcome<()> {{");
                line!(self, "        let _ = cx;");
                line!(self, "        Outcome::Done(())");
                line!(self, "    }}");
            } else {
                line!(self, "    {sig} -> Outcome<{}>;", self.result(proc));
            }
        }
        line!(self, "}}");
        line!(self, "");
    }

    fn server(&mut self, p: &Program, v: &Version) {
        let (name, of) = (&v.rust_server, &v.rust_trait);
        line!(self, "/// Offers a [`{of}`] as a program.");
        line!(self, "pub struct {name}<S> {{");
        line!(self, "    service: Arc<S>,");
        line!(self, "    admits: fn(&S, &PeerAddr) -> bool,");
        line!(self, "}}");
        line!(self, "impl<S: {of}> {name}<S> {{");
        line!(self, "    /// The procedures of this version, by number.");
        line!(self, "    pub const PROCEDURES: &'static [ProcInfo] = &[");
        for number in 0..=v.procs.last().map_or(0, |p| p.number) {
            match v.procs.iter().find(|p| p.number == number) {
                Some(proc) => {
                    let max = proc.result.map_or(0, |e| match e {
                        Elem::Scalar(Scalar::Hyper | Scalar::Uhyper | Scalar::Double) => 8,
                        Elem::Scalar(_) => 4,
                        Elem::Type(t) => self.def(t).facts.max,
                    });
                    let mut info =
                        format!("ProcInfo::new(\"{}\", {})", proc.name, grouped(max.min(MAX_RESULT).into()));
                    if proc.once {
                        info.push_str(".once()");
                    }
                    if proc.blocking {
                        info.push_str(".blocking()");
                    }
                    line!(self, "        {info},");
                }
                None if number == 0 => line!(self, "        ProcInfo::new(\"NULL\", 0),"),
                None => line!(self, "        ProcInfo::NONE,"),
            }
        }
        line!(self, "    ];");
        line!(self, "    const VERSIONS: &'static [VersionInfo] =");
        line!(self, "        &[VersionInfo {{ vers: {}, procs: Self::PROCEDURES }}];", v.rust_const);
        line!(self, "    /// A program that `service` answers.");
        line!(self, "    pub fn new(service: S) -> Self {{");
        line!(self, "        Self::from_arc(Arc::new(service))");
        line!(self, "    }}");
        line!(
            self,
            "    /// A program that a shared service answers, for instance several versions by one value."
        );
        line!(self, "    pub fn from_arc(service: Arc<S>) -> Self {{");
        line!(self, "        Self {{ service, admits: |_, _| true }}");
        line!(self, "    }}");
        line!(self, "    /// Calls from a peer validate their connection only if the service says so.");
        line!(self, "    pub fn admit_if(self, admits: fn(&S, &PeerAddr) -> bool) -> Self {{");
        line!(self, "        Self {{ admits, ..self }}");
        line!(self, "    }}");
        line!(self, "}}");
        line!(self, "impl<S: {of}> Program for {name}<S> {{");
        line!(self, "    fn number(&self) -> u32 {{");
        line!(self, "        {}", p.rust_const);
        line!(self, "    }}");
        line!(self, "    fn name(&self) -> &'static str {{");
        line!(self, "        \"{}\"", p.name);
        line!(self, "    }}");
        line!(self, "    fn versions(&self) -> &[VersionInfo] {{");
        line!(self, "        Self::VERSIONS");
        line!(self, "    }}");
        line!(
            self,
            "    fn attach(&self) -> Result<Box<dyn Dispatch>, Box<dyn ::std::error::Error + Send + Sync>> {{"
        );
        line!(self, "        Ok(Box::new({}(self.service.clone())))", dispatch_name(v));
        line!(self, "    }}");
        line!(self, "    fn admits(&self, peer: &PeerAddr) -> bool {{");
        line!(self, "        (self.admits)(&self.service, peer)");
        line!(self, "    }}");
        line!(self, "}}");
        line!(self, "");
    }

    fn dispatch(&mut self, v: &Version) {
        let name = dispatch_name(v);
        line!(self, "struct {name}<S>(Arc<S>);");
        line!(self, "impl<S: {}> Dispatch for {name}<S> {{", v.rust_trait);
        line!(self, "    fn call(");
        line!(self, "        &mut self,");
        line!(self, "        cx: &mut Call<'_>,");
        line!(self, "        d: &mut Decoder<'_>,");
        line!(self, "        out: &mut PageWriter<'_>,");
        line!(self, "    ) -> Result<Flow, RpcError> {{");
        line!(self, "        match cx.proc {{");
        if !v.procs.iter().any(|p| p.number == 0) {
            line!(self, "            0 => {{");
            line!(self, "                d.finish()?;");
            line!(self, "                Ok(Flow::Done)");
            line!(self, "            }}");
        }
        for proc in &v.procs {
            line!(self, "            {} => {{", proc.rust_const);
            for (arg, e) in &proc.args {
                let (ty, read) = (self.elem(*e, Form::Owned), self.decode(&Shape::One(*e), Form::Owned));
                line!(self, "                let {arg}: {ty} = {read};");
            }
            line!(self, "                d.finish()?;");
            let args: Vec<_> = proc.args.iter().map(|(n, _)| format!(", {n}")).collect();
            let map = match proc.result.and_then(|e| self.model.opaque_len(e)) {
                Some(_) => ".map(FixedOpaque)",
                None => "",
            };
            line!(self, "                self.0.{}(cx{}){map}.write(out)", proc.method, args.concat());
            line!(self, "            }}");
        }
        line!(self, "            _ => Err(RpcError::ProcUnavail),");
        line!(self, "        }}");
        line!(self, "    }}");
        line!(self, "}}");
        line!(self, "");
    }

    fn client(&mut self, p: &Program, v: &Version) {
        let name = &v.rust_client;
        line!(self, "/// Calls version {} of program `{}`.", v.number, p.name);
        line!(self, "#[derive(Debug)]");
        line!(self, "pub struct {name}<T>(Client<T>);");
        line!(self, "impl<T: CallXprt> {name}<T> {{");
        line!(self, "    /// A client that calls as nobody (AUTH_NONE).");
        line!(self, "    pub fn new(xprt: T) -> Self {{");
        line!(self, "        Self(Client::new(xprt, {}, {}))", p.rust_const, v.rust_const);
        line!(self, "    }}");
        line!(self, "    /// The client underneath, for credentials and the transport.");
        line!(self, "    pub fn client(&mut self) -> &mut Client<T> {{");
        line!(self, "        &mut self.0");
        line!(self, "    }}");
        line!(self, "    /// The same client with other options, for as long as the borrow lasts.");
        line!(self, "    pub fn with(&mut self, options: CallOptions) -> {name}<&mut T> {{");
        line!(self, "        {name}(self.0.with(options))");
        line!(self, "    }}");
        line!(self, "    /// Waits for the results of a call that was started.");
        line!(
            self,
            "    pub fn finish<R: for<'a> Decode<'a>>(&mut self, call: Pending<R>) -> Result<R, ClntError> {{"
        );
        line!(self, "        self.0.finish(call)");
        line!(self, "    }}");
        if !v.procs.iter().any(|p| p.number == 0 || p.method == "null") {
            line!(self, "    /// Procedure 0: does nothing.");
            line!(self, "    pub fn null(&mut self) -> Result<(), ClntError> {{");
            line!(self, "        self.0.call(0, &())");
            line!(self, "    }}");
        }
        for proc in &v.procs {
            self.client_proc(proc);
        }
        line!(self, "}}");
        line!(self, "");
    }

    /// The client's methods of a procedure.
    fn client_proc(&mut self, proc: &Proc) {
        let args = proc.args.iter().map(|(n, e)| {
            let by = if matches!(self.model.resolve(*e), Elem::Scalar(_)) { "" } else { "&" };
            format!(", {n}: {by}{}", self.elem(*e, Form::Owned))
        });
        let args: String = args.collect();
        let names: Vec<_> = proc.args.iter().map(|(n, _)| n.as_str()).collect();
        let names = names.join(", ");
        let result = self.result(proc);
        let (started, close) = match proc.result.and_then(|e| self.model.opaque_len(e)) {
            Some(n) => (format!("FixedOpaque<{n}>"), ".map(|v| v.0)"),
            None => (result.clone(), ""),
        };
        let (method, start, oneway) = (&proc.method, &proc.start, &proc.oneway);
        line!(self, "    /// `{}`", proc.text);
        line!(self, "    pub fn {method}(&mut self{args}) -> Result<{result}, ClntError> {{");
        line!(self, "        self.{start}({names}).and_then(|started| self.0.finish(started)){close}");
        line!(self, "    }}");
        line!(self, "    /// Starts [`Self::{method}`]; the results are in [`Self::finish`].");
        line!(self, "    pub fn {start}(&mut self{args}) -> Result<Pending<{started}>, ClntError> {{");
        self.client_send("start_with", proc);
        line!(self, "    }}");
        if proc.result.is_none() && !is_null(proc) {
            line!(
                self,
                "    /// [`Self::{method}`] of a server that never answers it: returns once the call is sent."
            );
            line!(self, "    pub fn {oneway}(&mut self{args}) -> Result<(), ClntError> {{");
            self.client_send("oneway_with", proc);
            line!(self, "    }}");
        }
    }

    fn client_send(&mut self, by: &str, proc: &Proc) {
        let writes: Vec<String> = proc
            .args
            .iter()
            .flat_map(|(n, e)| {
                let place = Place { by_ref: n.clone(), ..Place::variable(n) };
                self.encode(&Shape::One(*e), Form::Owned, Take::Borrow, &place)
            })
            .collect();
        let repeat = if proc.once { "Harmful" } else { "Harmless" };
        let w = if writes.is_empty() { "_" } else { "w" };
        line!(self, "        self.0.{by}({}, Repeat::{repeat}, |{w}| {{", proc.rust_const);
        for l in writes {
            line!(self, "            {l}");
        }
        line!(self, "            Ok(())");
        line!(self, "        }})");
    }
}

/// A procedure that every client may expect to do nothing.
fn is_null(proc: &Proc) -> bool {
    proc.number == 0 && proc.args.is_empty() && proc.result.is_none()
}

fn dispatch_name(v: &Version) -> String {
    format!("{}Dispatch", v.rust_trait)
}
