/* Two network namespaces with a wire of a fixed delay between them.
 *
 *   wire MICROSECONDS COMMAND ARGUMENT...
 *
 * COMMAND runs in a namespace with the address 10.77.0.1; 10.77.0.2 is in another one, and something
 * listens there on port 9100. A packet takes MICROSECONDS (a decimal number) one way. The wire is this
 * process: it polls two TUN devices without a pause, since a sleeping one would wake up too late.
 * Namespaces and devices end with it. Exit status: that of COMMAND; 125 when the wire cannot be laid.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>

#define SLOTS 256
#define MTU 2048

struct packet {
    uint64_t due;
    ssize_t size;
    char data[MTU];
};

struct lane {
    int from, to;
    unsigned head, tail;
    struct packet slots[SLOTS];
};

static struct lane lanes[2];

static void need(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(125);
    }
}

static uint64_t now(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return (uint64_t)moment.tv_sec * 1000000000ull + (uint64_t)moment.tv_nsec;
}

static void address(int control, struct ifreq *request, unsigned long what, const char *text) {
    struct sockaddr_in *in = (struct sockaddr_in *)&request->ifr_addr;
    memset(&request->ifr_addr, 0, sizeof request->ifr_addr);
    in->sin_family = AF_INET;
    inet_pton(AF_INET, text, &in->sin_addr);
    need(ioctl(control, what, request), "address");
}

static void up(int control, struct ifreq *request) {
    need(ioctl(control, SIOCGIFFLAGS, request), "flags");
    request->ifr_flags |= IFF_UP | IFF_RUNNING;
    need(ioctl(control, SIOCSIFFLAGS, request), "up");
}

/* A namespace of its own with a TUN device in it; this process stays in it. */
static int end_of_wire(const char *own, const char *other) {
    struct ifreq request = {0}, loop = {0};
    need(unshare(CLONE_NEWNET), "unshare");
    int control = socket(AF_INET, SOCK_DGRAM, 0);
    need(control, "socket");
    strcpy(loop.ifr_name, "lo");
    up(control, &loop);
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    need(device, "/dev/net/tun");
    strcpy(request.ifr_name, "wire");
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    need(ioctl(device, TUNSETIFF, &request), "TUNSETIFF");
    address(control, &request, SIOCSIFADDR, own);
    address(control, &request, SIOCSIFDSTADDR, other);
    up(control, &request);
    close(control);
    return device;
}

static int listening(void) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(9100)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    need(listener, "socket");
    need(bind(listener, (struct sockaddr *)&in, sizeof in), "bind");
    need(listen(listener, 128), "listen");
    return listener;
}

static void carry(struct lane *lane, uint64_t delay) {
    struct packet *last = &lane->slots[lane->tail % SLOTS];
    if (lane->tail - lane->head < SLOTS) {
        ssize_t size = read(lane->from, last->data, MTU);
        if (size > 0) {
            last->size = size;
            last->due = now() + delay;
            lane->tail++;
        }
    }
    struct packet *first = &lane->slots[lane->head % SLOTS];
    if (lane->head != lane->tail && now() >= first->due) {
        if (write(lane->to, first->data, (size_t)first->size) < 0 && errno == EAGAIN) return;
        lane->head++;
    }
}

/* The wire has the last CPU, the command the others: on one CPU they would wait for each other. */
static void part(int wire) {
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (long cpu = 0; cpu < all; cpu++)
        if ((cpu == all - 1) == wire) CPU_SET(cpu, &cpus);
    if (all > 1) sched_setaffinity(0, sizeof cpus, &cpus);
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "usage: wire MICROSECONDS COMMAND ARGUMENT...\n");
        return 125;
    }
    uint64_t delay = (uint64_t)(strtod(words[1], NULL) * 1000.0);
    int far = end_of_wire("10.77.0.2", "10.77.0.1");
    int listener = listening();
    int near = end_of_wire("10.77.0.1", "10.77.0.2");
    pid_t parent = getpid(), child = fork();
    need(child, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(125);
        part(0);
        execvp(words[2], words + 2);
        _exit(125);
    }
    part(1);
    setpriority(PRIO_PROCESS, 0, -20); /* the network is not what is tested */
    lanes[0].from = lanes[1].to = near;
    lanes[0].to = lanes[1].from = far;
    for (unsigned turn = 0;; turn++) {
        carry(&lanes[0], delay);
        carry(&lanes[1], delay);
        if (turn % 64 == 0) {
            int taken = accept(listener, NULL, NULL);
            if (taken >= 0) close(taken);
        }
        if (turn % 4096 == 0) {
            int status;
            if (waitpid(child, &status, WNOHANG) == child)
                return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
        }
    }
}
