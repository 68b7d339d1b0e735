// Does nothing: `uroce-run` is to refuse the file.
int main(void)
{
	return 0;
}
