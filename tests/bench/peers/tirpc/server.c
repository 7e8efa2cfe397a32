/* The plain RPC service of nfsbench on libtirpc: NULL, and the echo of an opaque, with libtirpc's own loop.
 *
 *   cc -O2 -o tirpc-server server.c $(pkg-config --cflags --libs libtirpc)
 *   ./tirpc-server PORT
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rpc/rpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* As in transports/examples/echo/echo.x, with room for more. */
enum { PROGRAM = 0x20000ec0, VERSION = 1, PROC_NULL = 0, PROC_ECHO = 1, MAX_DATA = 4 << 20 };

struct blob {
  char *data;
  u_int length;
};

static bool_t xdr_blob(XDR *xdrs, struct blob *blob) {
  return xdr_bytes(xdrs, &blob->data, &blob->length, MAX_DATA);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport) {
  switch (request->rq_proc) {
  case PROC_NULL:
    svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
    return;
  case PROC_ECHO: {
    struct blob blob;
    memset(&blob, 0, sizeof blob);
    if (!svc_getargs(transport, (xdrproc_t)xdr_blob, (caddr_t)&blob)) {
      svcerr_decode(transport);
      return;
    }
    svc_sendreply(transport, (xdrproc_t)xdr_blob, (caddr_t)&blob);
    svc_freeargs(transport, (xdrproc_t)xdr_blob, (caddr_t)&blob);
    return;
  }
  default:
    svcerr_noproc(transport);
  }
}

static int fail(const char *what) {
  perror(what);
  return EXIT_FAILURE;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s PORT\n", argv[0]);
    return 2;
  }
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  int on = 1;
  struct sockaddr_in address;
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_port = htons((uint16_t)atoi(argv[1]));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (listener < 0)
    return fail("socket");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  /* Accepted sockets inherit it. */
  setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, SOMAXCONN))
    return fail("bind");
  SVCXPRT *transport = svc_vc_create(listener, 0, 0);
  /* Without a netconfig the service is not announced to rpcbind. */
  if (!transport || !svc_reg(transport, PROGRAM, VERSION, dispatch, NULL)) {
    fprintf(stderr, "libtirpc refuses the service\n");
    return EXIT_FAILURE;
  }
  svc_run();
  fprintf(stderr, "svc_run returned\n");
  return EXIT_FAILURE;
}
