/* A wall clock that is off by the seconds in a file, for every process that preloads this.
   The file is mapped, so another number in it sets the clock while they run. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("FAKE_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        offset = mapped;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t id, struct timespec *told)
{
    int status = syscall(SYS_clock_gettime, id, told);
    if (!status && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        told->tv_sec += *offset;
    return status;
}

time_t time(time_t *into)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict told, void *restrict zone)
{
    struct timespec now = {0};
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return status;
}
