/* The baseline for Perdure: the minimum work that carries an agent's lines to SSE viewers.
 *
 * reference PORT [FD ...]: GET /events on 127.0.0.1:PORT (0: any port) makes the connection a viewer of stdin, and
 * GET /events/N a viewer of the Nth of the other descriptors. Each line becomes one frame for each of its viewers; the
 * frames of one read are joined and written once per viewer. If a viewer's socket is full, the rest goes to a buffer of
 * that viewer. One thread, epoll, no parsing, no storage, no authentication. When every input has ended, it sends what
 * is buffered, for at most DRAIN_S, and exits. Prints its port when ready.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_FDS = 65536,
    READ_BYTES = 64 * 1024,
    MAX_LINE_BYTES = 1024 * 1024,
    MAX_PENDING_BYTES = 64 * 1024 * 1024,
    MAX_EVENTS = 256,
    DRAIN_S = 10,
};

static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
                           "Connection: close\r\n\r\n";

struct viewer {
    int fd;
    int source;       /* the descriptor that it reads */
    int streaming;    /* has sent its request and received the head */
    int place;        /* index in the list of viewers */
    int asked_writable;
    char *pending;
    size_t start, end, room;
};

struct source {
    char *lines;
    size_t held;
    unsigned long long seq;
};

static struct viewer *by_fd[MAX_FDS];
static struct source *sources[MAX_FDS];
static int *source_fds;
static int source_count, open_sources;
static struct viewer *viewers[MAX_FDS];
static int viewer_count;
static int epoll_fd;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *grown(void *memory, size_t bytes) {
    void *more = realloc(memory, bytes);
    if (!more) die("realloc");
    return more;
}

static void watch(int fd, unsigned events, int operation) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll_fd, operation, fd, &event) < 0 && operation == EPOLL_CTL_ADD) die("epoll_ctl");
}

static void drop(struct viewer *viewer) {
    if (viewer->streaming) {
        viewers[viewer->place] = viewers[--viewer_count];
        viewers[viewer->place]->place = viewer->place;
    }
    by_fd[viewer->fd] = NULL;
    close(viewer->fd);
    free(viewer->pending);
    free(viewer);
}

/* Buffer what the socket did not accept. Returns false if the viewer is too far behind. */
static int keep(struct viewer *viewer, const char *bytes, size_t count) {
    if (viewer->end - viewer->start + count > MAX_PENDING_BYTES) return 0;
    /* Only when half is free: moving a long backlog on each write would cost more than the writes. */
    if (viewer->start > viewer->room / 2) {
        memmove(viewer->pending, viewer->pending + viewer->start, viewer->end - viewer->start);
        viewer->end -= viewer->start;
        viewer->start = 0;
    }
    if (viewer->end + count > viewer->room) {
        viewer->room = (viewer->end + count) * 2;
        viewer->pending = grown(viewer->pending, viewer->room);
    }
    memcpy(viewer->pending + viewer->end, bytes, count);
    viewer->end += count;
    if (!viewer->asked_writable) {
        viewer->asked_writable = 1;
        watch(viewer->fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
    return 1;
}

/* Write, or buffer in order. Returns false if the viewer is gone. */
static int deliver(struct viewer *viewer, const char *bytes, size_t count) {
    if (viewer->end == viewer->start) {
        ssize_t sent = send(viewer->fd, bytes, count, MSG_NOSIGNAL);
        if (sent == (ssize_t)count) return 1;
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return 0;
        if (sent > 0) {
            bytes += sent;
            count -= (size_t)sent;
        }
    }
    return keep(viewer, bytes, count);
}

static void writable(struct viewer *viewer) {
    ssize_t sent = send(viewer->fd, viewer->pending + viewer->start, viewer->end - viewer->start, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        drop(viewer);
        return;
    }
    if (sent > 0) viewer->start += (size_t)sent;
    if (viewer->start == viewer->end) {
        free(viewer->pending);
        viewer->pending = NULL;
        viewer->start = viewer->end = viewer->room = 0;
        viewer->asked_writable = 0;
        watch(viewer->fd, EPOLLIN, EPOLL_CTL_MOD);
    }
}

static void readable(struct viewer *viewer) {
    char request[4096];
    ssize_t got = recv(viewer->fd, request, sizeof request - 1, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        drop(viewer);
        return;
    }
    request[got] = 0;
    /* Enough for a benchmark: the load generator sends its request in one segment. */
    if (viewer->streaming || !strstr(request, "\r\n\r\n")) return;
    if (strncmp(request, "GET /events", 11) != 0) {
        deliver(viewer, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 66);
        drop(viewer);
        return;
    }
    int number = request[11] == '/' ? atoi(request + 12) : 0;
    viewer->source = source_fds[number >= 0 && number < source_count ? number : 0];
    viewer->streaming = 1;
    viewer->place = viewer_count;
    viewers[viewer_count++] = viewer;
    if (!deliver(viewer, HEAD, sizeof HEAD - 1)) drop(viewer);
}

static void welcome(int listener) {
    for (;;) {
        int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        if (fd >= MAX_FDS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        by_fd[fd] = grown(NULL, sizeof(struct viewer));
        memset(by_fd[fd], 0, sizeof(struct viewer));
        by_fd[fd]->fd = fd;
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static void open_source(int fd) {
    struct source *source = sources[fd] = grown(NULL, sizeof(struct source));
    source->lines = grown(NULL, MAX_LINE_BYTES + READ_BYTES);
    source->held = source->seq = 0;
    source_fds = grown(source_fds, (size_t)(source_count + 1) * sizeof(int));
    source_fds[source_count++] = fd;
    open_sources++;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    watch(fd, EPOLLIN, EPOLL_CTL_ADD);
}

/* Read once from an agent, and send its whole lines as joined frames to every viewer. Returns false at EOF. */
static int agent_said(int fd) {
    static char *frames;
    static size_t room;
    struct source *source = sources[fd];
    char *lines = source->lines, *newline;
    ssize_t got = read(fd, lines + source->held, READ_BYTES);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return 0;
    source->held += (size_t)got;
    size_t used = 0, made = 0;
    while ((newline = memchr(lines + used, '\n', source->held - used))) {
        size_t length = (size_t)(newline - (lines + used));
        if (made + length + 96 > room) frames = grown(frames, room = (made + length + 96) * 2);
        made += (size_t)sprintf(frames + made, "id: %llu\nevent: assistant_text\ndata: ", ++source->seq);
        memcpy(frames + made, lines + used, length);
        memcpy(frames + made + length, "\n\n", 2);
        made += length + 2;
        used += length + 1;
    }
    source->held -= used;
    memmove(lines, lines + used, source->held);
    if (source->held > MAX_LINE_BYTES) source->held = 0;
    /* Backwards, because dropping moves the last viewer into the gap. */
    for (int i = viewer_count - 1; made && i >= 0; i--)
        if (viewers[i]->source == fd && !deliver(viewers[i], frames, made)) drop(viewers[i]);
    return 1;
}

static int listening(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 4096) < 0) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static int anything_pending(void) {
    for (int i = 0; i < viewer_count; i++)
        if (viewers[i]->end > viewers[i]->start) return 1;
    return 0;
}

int main(int argc, char **argv) {
    struct rlimit files;
    struct epoll_event events[MAX_EVENTS];
    time_t deadline = 0;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int listener = listening(argc > 1 ? atoi(argv[1]) : 0);
    watch(listener, EPOLLIN, EPOLL_CTL_ADD);
    open_source(0);
    for (int i = 2; i < argc; i++) open_source(atoi(argv[i]));
    while (!deadline || (time(NULL) < deadline && anything_pending())) {
        int count = epoll_wait(epoll_fd, events, MAX_EVENTS, deadline ? 100 : -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (sources[fd]) {
                if (agent_said(fd)) continue;
                watch(fd, 0, EPOLL_CTL_DEL);
                if (--open_sources == 0) deadline = time(NULL) + DRAIN_S;
            } else if (fd == listener) {
                welcome(listener);
            } else {
                if (by_fd[fd] && events[i].events & EPOLLOUT && by_fd[fd]->asked_writable) writable(by_fd[fd]);
                if (by_fd[fd] && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(by_fd[fd]);
            }
        }
    }
    return 0;
}
