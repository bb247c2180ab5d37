/* `ebb version`.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "cli/cli.h"
#include "recipe/machine.h"

/* The first line of what failed, for one line of what is asked for here; the rest is advice. */
static const char *take_error(struct ebb_cli *cli, char out[EBB_BACKEND_WHY])
{
    snprintf(out, EBB_BACKEND_WHY, "%s", ebb_error_text(cli->ctx));
    out[strcspn(out, "\n")] = '\0';
    ebb_error_clear(cli->ctx);
    return out;
}

/* "cpu: NAME, LIBRARIES". A library that is missing is an answer here, no failure. */
static enum ebb_status print_device(struct ebb_cli *cli, enum ebb_backend backend, const char *name,
                                    const char *driver)
{
    const struct ebb_machine machine = {.env = &cli->env, .backend = backend, .storage = EBB_BF16};
    struct ebb_str libraries = {0};
    char why[EBB_BACKEND_WHY];
    enum ebb_status status = ebb_machine_libraries(cli->ctx, &machine, &libraries);
    printf("%s: %s%s%s%s", ebb_backend_name(backend), name, driver[0] ? ", driver " : "", driver,
           libraries.bytes ? libraries.data : "");
    if (status != EBB_OK) printf("; %s", take_error(cli, why));
    printf("\n");
    ebb_str_free(cli->ctx, &libraries);
    return status == EBB_NO_MEMORY ? status : EBB_OK;
}

/* The devices of this machine, and what is known of its GPU. */
static enum ebb_status print_devices(struct ebb_cli *cli)
{
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    struct ebb_device *device = NULL;
    struct ebb_backend_facts facts;
    char why[EBB_BACKEND_WHY] = "";
    bool there = ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why);
    printf("devices: cpu%s\n", there ? ", cuda" : "");
    (void)ebb_backend_facts(cli->ctx, EBB_BACKEND_CPU, &facts);
    EBB_TRY(print_device(cli, EBB_BACKEND_CPU, facts.name, facts.driver));
    if (!there) {
        printf("cuda: %s\n", why);
        return EBB_OK;
    }
    if (ebb_device_create(cli->ctx, &options, &device) != EBB_OK) {
        printf("cuda: %s\n", take_error(cli, why));
        return EBB_OK;
    }
    (void)ebb_backend_facts(cli->ctx, EBB_BACKEND_CUDA, &facts);
    enum ebb_status status =
        print_device(cli, EBB_BACKEND_CUDA, ebb_device_name(device), facts.driver);
    ebb_device_free(device);
    return status;
}

enum ebb_status ebb_cli_version(struct ebb_cli *cli)
{
    printf("ebb %s\n", EBB_VERSION);
    EBB_TRY(print_devices(cli));
    printf("jansson %s, libyaml %s\n", jansson_version_str(), yaml_get_version_string());
    return EBB_OK;
}
