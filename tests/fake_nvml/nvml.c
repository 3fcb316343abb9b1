/* A libnvidia-ml.so.1 for hosts without a GPU: what it says stands in the file that FAKE_NVML names,
 * one "key=number" a line, read anew with every call.
 *
 *   init           what nvmlInit returns (0; 4: no permission; 9: driver not loaded)
 *   gpus           how many there are
 *   utilization    percent; utilization1 of GPU 1 alone
 *   memory_mb      of 81920 MiB in use
 *   pid            of the one process that every GPU runs; 0: none
 *   process_mb     of the memory that it holds; 512 otherwise
 *   lost           number of the GPU that has fallen off the bus; -1: none
 *   forbidden      number of the GPU that this user may not read; -1: none
 *   mig            number of the GPU that is divided into two instances; -1: none
 *   hang_s         how long a call for a GPU's memory takes, unless the file says 0 by then
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
       NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { PARTS = 2, MAX_PARTS = 7 };
typedef unsigned long long bytes_t;

static int setting(const char *key, int otherwise) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[128];
    int value = otherwise;
    while (file && fgets(line, sizeof line, file)) {
        size_t n = strlen(key);
        if (!strncmp(line, key, n) && line[n] == '=') value = atoi(line + n + 1);
    }
    if (file) fclose(file);
    return value;
}

/* A handle is 1 + 16 * GPU + part, where part 0 is the GPU itself. */
static void *handle_of(int gpu, int part) { return (void *)(size_t)(1 + 16 * gpu + part); }
static int gpu_of(void *handle) { return (int)(((size_t)handle - 1) / 16); }
static int part_of(void *handle) { return (int)(((size_t)handle - 1) % 16); }

static int trouble(void *handle) {
    if (gpu_of(handle) == setting("lost", -1)) return LOST;
    if (gpu_of(handle) == setting("forbidden", -1)) return NO_PERMISSION;
    return OK;
}

static void hang(void) {
    for (int i = 0; i < 20 * setting("hang_s", 0); i++) usleep(50000);
}

EXPORT int nvmlInitWithFlags(unsigned flags) { (void)flags; return setting("init", OK); }
EXPORT int nvmlInit_v2(void) { return setting("init", OK); }
EXPORT int nvmlShutdown(void) { return OK; }
EXPORT const char *nvmlErrorString(int code) { (void)code; return "a failure of the fake"; }

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)setting("gpus", 0);
    return OK;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if ((int)index >= setting("gpus", 0)) return INVALID;
    *handle = handle_of((int)index, 0);
    return trouble(*handle);
}

static void write_uuid(void *handle, char *text, unsigned size) {
    if (part_of(handle))
        snprintf(text, size, "MIG-%08d-0000-0000-0000-%012d", gpu_of(handle), part_of(handle));
    else
        snprintf(text, size, "GPU-%08d-0000-0000-0000-000000000000", gpu_of(handle));
}

EXPORT int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    write_uuid(handle, text, size);
    return trouble(handle);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    for (int gpu = 0; gpu < setting("gpus", 0); gpu++)
        for (int part = 0; part <= PARTS; part++) {
            char text[96];
            write_uuid(handle_of(gpu, part), text, sizeof text);
            if (!strcmp(text, uuid)) {
                *handle = handle_of(gpu, part);
                return trouble(*handle);
            }
        }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    snprintf(text, size, part_of(handle) ? "Fake 80 MIG 3g.40gb" : "Fake 80");
    return trouble(handle);
}

typedef struct { bytes_t total, free, used; } memory_t;

EXPORT int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    hang();
    memory->total = ((bytes_t)81920 << 20) / (part_of(handle) ? PARTS : 1);
    memory->used = (bytes_t)setting("memory_mb", 0) << 20;
    memory->free = memory->total - memory->used;
    return trouble(handle);
}

EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    *current = *pending = gpu_of(handle) == setting("mig", -1);
    return trouble(handle);
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    *count = MAX_PARTS;
    return trouble(handle);
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **part) {
    if (gpu_of(handle) != setting("mig", -1)) return INVALID;
    if (index >= PARTS) return NOT_FOUND;
    *part = handle_of(gpu_of(handle), (int)index + 1);
    return OK;
}

typedef struct { unsigned gpu, memory; } rates_t;

EXPORT int nvmlDeviceGetUtilizationRates(void *handle, rates_t *rates) {
    char key[32];
    snprintf(key, sizeof key, "utilization%d", gpu_of(handle));
    if (part_of(handle)) return NOT_SUPPORTED;
    rates->gpu = (unsigned)setting(key, setting("utilization", 0));
    rates->memory = 0;
    return trouble(handle);
}

EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    *milliwatts = 250000;
    return part_of(handle) ? NOT_SUPPORTED : trouble(handle);
}

EXPORT int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    (void)sensor;
    *celsius = 61;
    return part_of(handle) ? NOT_SUPPORTED : trouble(handle);
}

EXPORT int nvmlDeviceGetClockInfo(void *handle, int clock, unsigned *mhz) {
    *mhz = clock == 1 ? 1410 : 0;
    return part_of(handle) ? NOT_SUPPORTED : trouble(handle);
}

typedef struct { unsigned pid; bytes_t used; unsigned instance, part; } process_t;

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *found) {
    unsigned n = setting("pid", 0) ? 1 : 0;
    if (trouble(handle)) return trouble(handle);
    if (n > *count) { *count = n; return INSUFFICIENT_SIZE; }
    *count = n;
    if (n) found[0] = (process_t){(unsigned)setting("pid", 0),
                                (bytes_t)setting("process_mb", 512) << 20, 0, 0};
    return OK;
}
