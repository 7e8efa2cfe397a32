/* NLM version 4 and NSM as libnfs encodes them: a name, and the bytes in hexadecimal. How to run: ../peers.rs */

#include <stdio.h>
#include <string.h>
#include <nfsc/libnfs-zdr.h>
#include <nfsc/libnfs-raw-nlm.h>
#include <nfsc/libnfs-raw-nsm.h>

#define SHOW(type, ...)                                                  \
    do {                                                                 \
        type v = __VA_ARGS__;                                            \
        char b[4096];                                                    \
        ZDR z;                                                           \
        zdrmem_create(&z, b, sizeof b, ZDR_ENCODE);                      \
        if (!zdr_##type(&z, &v)) return 1;                               \
        show(#type, b, zdr_getpos(&z));                                  \
    } while (0)

#define NUMBERS(name, ...)                                               \
    do {                                                                 \
        unsigned n[] = { __VA_ARGS__ };                                  \
        printf(name);                                                    \
        for (unsigned i = 0; i < sizeof n / sizeof *n; i++) printf(" %08x", n[i]); \
        printf("\n");                                                    \
    } while (0)

static void show(const char *name, const char *b, unsigned n)
{
    printf("%s", name);
    for (unsigned i = 0; i < n; i++) printf("%s%02x", i % 4 ? "" : " ", b[i] & 0xff);
    printf("\n");
}

#define COOKIE { { 3, "\1\2\3" } }
#define ID { "peer.example", { "client.example", 100021, 4, 16 } }

int main(void)
{
    nlm4_lock lock = { "client.example", { { 5, "fh\1\2\3" } }, "4711@client.example", 4711, 1ull << 40, 4096 };

    NUMBERS("NLM_V4", NLM_PROGRAM, NLM_V4, NLM4_NULL, NLM4_TEST, NLM4_LOCK, NLM4_CANCEL, NLM4_UNLOCK, NLM4_GRANT,
            NLM4_TEST_MSG, NLM4_LOCK_MSG, NLM4_CANCEL_MSG, NLM4_UNLOCK_MSG, NLM4_GRANT_MSG, NLM4_TEST_RES,
            NLM4_LOCK_RES, NLM4_CANCEL_RES, NLM4_UNLOCK_RES, NLM4_GRANT_RES);
    NUMBERS("NSM_V1", NSM_PROGRAM, NSM_V1, NSM1_NULL, NSM1_STAT, NSM1_MON, NSM1_UNMON, NSM1_UNMON_ALL, NSM1_SIMU_CRASH,
            NSM1_NOTIFY, NSM_MAXSTRLEN);
    SHOW(NLM4_TESTargs, { COOKIE, 1, lock });
    SHOW(NLM4_LOCKargs, { COOKIE, 1, 0, lock, 1, 7 });
    SHOW(NLM4_CANCargs, { COOKIE, 0, 1, lock });
    SHOW(NLM4_UNLOCKargs, { COOKIE, lock });
    SHOW(NLM4_GRANTEDargs, { COOKIE, 0, lock });
    SHOW(NLM4_TESTres, { COOKIE, { NLM4_DENIED, { { { 1, 4712, "4712@other", ~0ull - 9, 10 } } } } });
    SHOW(NLM4_TESTres, { COOKIE, { NLM4_GRANTED } });
    SHOW(NLM4_LOCKres, { COOKIE, NLM4_BLOCKED });
    SHOW(NLM4_CANCres, { COOKIE, NLM4_DENIED_GRACE_PERIOD });
    SHOW(NLM4_UNLOCKres, { COOKIE, NLM4_STALE_FH });
    SHOW(NLM4_GRANTEDres, { COOKIE, NLM4_FAILED });
    SHOW(NSM1_STATargs, { "peer.example" });
    SHOW(NSM1_STATres, { NSM_STAT_FAIL, 9 });
    SHOW(NSM1_MONargs, { ID, "sixteen bytes, p" });
    SHOW(NSM1_MONres, { NSM_STAT_SUCC, 9 });
    SHOW(NSM1_UNMONargs, { ID });
    SHOW(NSM1_UNMONres, { 11 });
    SHOW(NSM1_UNMONALLargs, { { "client.example", 100021, 4, 16 } });
    SHOW(NSM1_UNMONALLres, { 13 });
    SHOW(NSM1_NOTIFYargs, { "peer.example", -2147483647 });
    return 0;
}
