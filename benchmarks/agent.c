/* A minimal agent for benchmarks: it supports only enough ACP to receive a prompt, and answers with deltas.
 *
 * agent                        ACP on stdin and stdout. Answers a prompt "load PER_S COUNT START_NS" with COUNT deltas
 *                              at that rate (0: as fast as the pipe accepts them), starting at that time.
 * agent PER_S COUNT START_NS   The same deltas without a prompt, for the C reference.
 *
 * Each delta contains the time at which it was written ("@" and nanoseconds). The agent has no real parser, reads
 * nothing while it answers, and supports no other method. It only generates load; it is not for tests, on purpose.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LINES_PER_WRITE = 100,
    TEXT_BYTES = 140,
    MAX_LINE_BYTES = 512,
};

static const long long NS_PER_S = 1000000000LL;

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void wait_until(long long moment_ns) {
    struct timespec moment = {.tv_sec = moment_ns / NS_PER_S, .tv_nsec = moment_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR)
        ;
}

static void put(const char *bytes, size_t count) {
    while (count) {
        ssize_t done = write(1, bytes, count);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) exit(1);
        bytes += done;
        count -= (size_t)done;
    }
}

static size_t delta(char *line, long number) {
    char text[TEXT_BYTES + 1];
    int used = snprintf(text, sizeof text, "@%019lld w%ld ", now_ns(), number);
    memset(text + used, '.', (size_t)(TEXT_BYTES - used));
    text[TEXT_BYTES] = 0;
    return (size_t)sprintf(line,
                           "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"load\","
                           "\"update\":{\"sessionUpdate\":\"agent_message_chunk\","
                           "\"content\":{\"type\":\"text\",\"text\":\"%s\"}}}}\n",
                           text);
}

static void stream(long per_s, long count, long long begun) {
    static char lines[LINES_PER_WRITE * MAX_LINE_BYTES];
    size_t made = 0;
    wait_until(begun);
    for (long number = 0; number < count; number++) {
        /* The schedule is absolute, so a late delta does not delay the later ones. */
        if (per_s) wait_until(begun + number * NS_PER_S / per_s);
        made += delta(lines + made, number);
        if (per_s || (number + 1) % LINES_PER_WRITE == 0) {
            put(lines, made);
            made = 0;
        }
    }
    put(lines, made);
}

/* Ids are integers here. Anything else is a notification or an answer, and is ignored. */
static void obey(const char *line) {
    const char *method = strstr(line, "\"method\":\""), *id = strstr(line, "\"id\":");
    char answer[MAX_LINE_BYTES];
    const char *result = "{}";
    if (!method || !id) return;
    method += strlen("\"method\":\"");
    if (!strncmp(method, "initialize\"", 11)) {
        result = "{\"protocolVersion\":1,\"agentCapabilities\":{},\"authMethods\":[]}";
    } else if (!strncmp(method, "session/new\"", 12)) {
        result = "{\"sessionId\":\"load\"}";
    } else if (!strncmp(method, "session/prompt\"", 15)) {
        const char *order = strstr(line, "load ");
        char *rest;
        if (order) {
            long per_s = strtol(order + strlen("load "), &rest, 10);
            long count = strtol(rest, &rest, 10);
            stream(per_s, count, strtoll(rest, NULL, 10));
        }
        result = "{\"stopReason\":\"end_turn\"}";
    }
    put(answer, (size_t)snprintf(answer, sizeof answer, "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":%s}\n",
                                 strtol(id + strlen("\"id\":"), NULL, 10), result));
}

int main(int argc, char **argv) {
    char *line = NULL;
    size_t room = 0;
    if (argc == 4) {
        stream(atol(argv[1]), atol(argv[2]), atoll(argv[3]));
        return 0;
    }
    while (getline(&line, &room, stdin) > 0) obey(line);
    return 0;
}
