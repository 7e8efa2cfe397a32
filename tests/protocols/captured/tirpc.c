/*
 * What libtirpc and rpcgen's code encode: the share calls of NLM, NSM, RPC-over-RDMA version 1, RPCSEC_GSS. A name, and
 * the bytes in hexadecimal. How to run: ../peers.rs
 */

#include <stdio.h>
#include <rpc/rpc.h>
#include "nlm_prot.h"
#include "sm_inter.h"
#include "rfc8166.h"

#define SHOW(type, ...)                                                  \
    do {                                                                 \
        type v = __VA_ARGS__;                                            \
        if (show(#type, (xdrproc_t) xdr_##type, &v)) return 1;           \
    } while (0)

#define NUMBERS(name, ...)                                               \
    do {                                                                 \
        unsigned n[] = { __VA_ARGS__ };                                  \
        printf(name);                                                    \
        for (unsigned i = 0; i < sizeof n / sizeof *n; i++) printf(" %08x", n[i]); \
        printf("\n");                                                    \
    } while (0)

static int show(const char *name, xdrproc_t encode, void *value)
{
    char b[4096];
    XDR x;

    xdrmem_create(&x, b, sizeof b, XDR_ENCODE);
    if (!encode(&x, value, 0)) return 1;
    printf("%s", name);
    for (unsigned i = 0; i < xdr_getpos(&x); i++) printf("%s%02x", i % 4 ? "" : " ", b[i] & 0xff);
    printf("\n");
    return 0;
}

/* Of <rpc/auth_gss.h>, which wants the headers of a GSS-API library. */
typedef struct { size_t length; void *value; } buffer, rpc_gss_init_args;
typedef struct { u_int version; int proc; u_int seq; int service; buffer ctx; } rpc_gss_cred;
typedef struct { buffer ctx; u_int major, minor, window; buffer token; } rpc_gss_init_res;
bool_t xdr_rpc_gss_cred(XDR *, rpc_gss_cred *);
bool_t xdr_rpc_gss_init_args(XDR *, rpc_gss_init_args *);
bool_t xdr_rpc_gss_init_res(XDR *, rpc_gss_init_res *);
enum { DATA, INIT, CONTINUE_INIT, DESTROY };
enum { NONE = 1, INTEGRITY, PRIVACY };

#define COOKIE { 3, "\1\2\3" }
#define SHARE { "client.example", { 5, "fh\1\2\3" }, { 6, "owner\0" }, fsm_DRW, fsa_R }
#define ID { "peer.example", { "client.example", 100021, 4, 16 } }

int main(void)
{
    NUMBERS("NLM_VERSX", NLM_PROG, NLM_SHARE, NLM_UNSHARE, NLM_NM_LOCK, NLM_FREE_ALL, LM_MAXSTRLEN, MAX_NETOBJ_SZ);
    NUMBERS("SM_VERS", SM_PROG, SM_VERS, SM_STAT, SM_MON, SM_UNMON, SM_UNMON_ALL, SM_SIMU_CRASH, SM_MAXSTRLEN);
    SHOW(nlm_shareargs, { COOKIE, SHARE, 1 });
    SHOW(nlm_shareres, { COOKIE, nlm_denied, -3 });
    SHOW(nlm_notify, { "client.example", 15 });

    SHOW(sm_name, { "peer.example" });
    SHOW(sm_stat_res, { stat_fail, 9 });
    SHOW(mon, { ID, "sixteen bytes, p" });
    SHOW(mon_id, ID);
    SHOW(my_id, { "client.example", 100021, 4, 16 });
    SHOW(sm_stat, { 13 });
    SHOW(status, { "peer.example", 17, "sixteen bytes, p" });

    xdr_rdma_segment at[3] = { { 0xa0b0c0d, 4096, 1ull << 47 }, { 1, 0, 0 }, { ~0u, ~0u, ~0ull } };
    xdr_read_list second = { { 148, at[1] }, NULL }, first = { { 0, at[0] }, &second };
    xdr_write_list none = { { { 0, NULL } }, NULL }, two = { { { 2, at + 1 } }, &none };
    xdr_write_chunk reply = { { 1, at + 2 } };
    rdma_msg m = { 0x11223344, 1, 32, { RDMA_MSG } };

    m.rdma_body.rdma_body_u.rdma_msg = (rpc_rdma_header) { &first, &two, &reply };
    SHOW(rdma_msg, m);
    m.rdma_body.rdma_body_u.rdma_msg = (rpc_rdma_header) { NULL, NULL, NULL };
    SHOW(rdma_msg, m);
    m.rdma_body.proc = RDMA_NOMSG;
    m.rdma_body.rdma_body_u.rdma_nomsg = (rpc_rdma_header_nomsg) { &second, NULL, &reply };
    SHOW(rdma_msg, m);
    m.rdma_body.proc = RDMA_MSGP;
    m.rdma_body.rdma_body_u.rdma_msgp = (rpc_rdma_header_padded) { 8, 1024, NULL, &none, NULL };
    SHOW(rdma_msg, m);
    m.rdma_body.proc = RDMA_DONE;
    SHOW(rdma_msg, m);
    m.rdma_body.proc = RDMA_ERROR;
    m.rdma_body.rdma_body_u.rdma_error.err = ERR_VERS;
    m.rdma_body.rdma_body_u.rdma_error.rpc_rdma_error_u.range = (rpc_rdma_errvers) { 1, 2 };
    SHOW(rdma_msg, m);
    m.rdma_body.rdma_body_u.rdma_error.err = ERR_CHUNK;
    SHOW(rdma_msg, m);

    SHOW(rpc_gss_cred, { 1, INIT, 0, NONE, { 0, NULL } });
    SHOW(rpc_gss_cred, { 1, CONTINUE_INIT, 0, INTEGRITY, { 5, "ctx\1\2" } });
    SHOW(rpc_gss_cred, { 1, DATA, 0x7fffffff, PRIVACY, { 4, "ctx\1" } });
    SHOW(rpc_gss_cred, { 1, DESTROY, 6, NONE, { 1, "c" } });
    SHOW(rpc_gss_init_args, { 7, "a token" });
    SHOW(rpc_gss_init_res, { { 5, "ctx\1\2" }, 1, 39756033, 128, { 6, "token2" } });
    return 0;
}
