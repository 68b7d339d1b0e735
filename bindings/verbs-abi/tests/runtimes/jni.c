/* The native methods of Faults.java. */

#define _GNU_SOURCE
#include <jni.h>

#include "faults.h"

#define METHOD(type, name) JNIEXPORT type JNICALL Java_Faults_##name(JNIEnv *env, jclass class)

METHOD(void, openDevice)
{
	(void)env, (void)class;
	open_device();
}

METHOD(void, loseRegions)
{
	(void)env, (void)class;
	lose_regions();
}

METHOD(jlong, countOfFaults)
{
	(void)env, (void)class;
	return count_of_faults();
}

METHOD(void, faultInC)
{
	(void)env, (void)class;
	fault_in_c();
}
