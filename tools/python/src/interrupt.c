/* interrupt.c - SIGINT while the main thread of Python opens or runs a model.
 *
 * Python's own handler only notes the signal, and looks at the note between two bytecodes: a
 * run of a minute would end first. During a call of the main thread, and only then, a handler
 * stands in front of Python's: it cancels the context (attnrun_cancel() may be called from a
 * handler), or sets the flag that ends the opening of a model, and then calls Python's, so that
 * KeyboardInterrupt follows. Nothing is done where SIGINT is ignored or has its default effect. */
#include "binding.h"

#include <sched.h>
#include <signal.h>

static unsigned long main_thread;
static attnrun_context *running; /* atomic */
static int32_t *opening;         /* atomic */
static bool is_set;              /* the handler stands there */
static int inside;               /* atomic: handlers that run now, in whichever thread */
static struct sigaction python_action;

void interrupt_setup(void)
{
    main_thread = PyThread_get_thread_ident();
    sigaction(SIGINT, NULL, &python_action);
}

static bool calls_something(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

static void on_interrupt(int number, siginfo_t *info, void *machine)
{
    __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    attnrun_cancel(__atomic_load_n(&running, __ATOMIC_SEQ_CST));
    int32_t *flag = __atomic_load_n(&opening, __ATOMIC_SEQ_CST);
    if (flag != NULL)
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
    if (python_action.sa_flags & SA_SIGINFO)
        python_action.sa_sigaction(number, info, machine);
    else if (calls_something(&python_action))
        python_action.sa_handler(number);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
}

/* What a signal stops from now on. */
static void aim(attnrun_context *context, int32_t *flag)
{
    __atomic_store_n(&running, context, __ATOMIC_SEQ_CST);
    __atomic_store_n(&opening, flag, __ATOMIC_SEQ_CST);
}

bool interrupt_begin(attnrun_context *context, int32_t *flag)
{
    struct sigaction before, ours = { .sa_sigaction = on_interrupt };
    if (PyThread_get_thread_ident() != main_thread || is_set)
        return false;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    aim(context, flag);
    if (sigaction(SIGINT, &ours, &before) == 0) {
        python_action = before; /* Python has one function of its own: rarely a change */
        if (calls_something(&before)) {
            is_set = true;
            return true;
        }
        sigaction(SIGINT, &before, NULL);
    }
    aim(NULL, NULL);
    return false;
}

void interrupt_end(void)
{
    int32_t *flag = opening;
    sigaction(SIGINT, &python_action, NULL);
    is_set = false;
    aim(NULL, NULL);
    while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) != 0)
        sched_yield(); /* a handler in another thread still looks at it */
    if (flag != NULL)
        __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST); /* later calls begin anew */
}
