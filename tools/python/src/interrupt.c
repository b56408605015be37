/* interrupt.c - SIGINT while the main thread of Python runs a model.
 *
 * Python's own handler only notes the signal, and looks at the note between two bytecodes: a
 * run of a minute would end first. During a run of the main thread, and only then, a handler
 * stands in front of Python's: it cancels the context (attnrun_cancel() may be called from a
 * handler) and then calls Python's, so that KeyboardInterrupt follows. Nothing is done where
 * SIGINT is ignored or has its default effect. */
#include "binding.h"

#include <sched.h>
#include <signal.h>

static unsigned long main_thread;
static attnrun_context *running; /* atomic */
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
    if (python_action.sa_flags & SA_SIGINFO)
        python_action.sa_sigaction(number, info, machine);
    else if (calls_something(&python_action))
        python_action.sa_handler(number);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
}

bool interrupt_begin(attnrun_context *context)
{
    struct sigaction before, ours = { .sa_sigaction = on_interrupt };
    if (PyThread_get_thread_ident() != main_thread || running != NULL)
        return false;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    __atomic_store_n(&running, context, __ATOMIC_SEQ_CST);
    if (sigaction(SIGINT, &ours, &before) == 0) {
        python_action = before; /* Python has one function of its own: rarely a change */
        if (calls_something(&before))
            return true;
        sigaction(SIGINT, &before, NULL);
    }
    __atomic_store_n(&running, NULL, __ATOMIC_SEQ_CST);
    return false;
}

void interrupt_end(void)
{
    sigaction(SIGINT, &python_action, NULL);
    __atomic_store_n(&running, NULL, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) != 0)
        sched_yield(); /* a handler in another thread still looks at the context */
}
